from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, Reject, consumer, send, send_many
from streams.errors import GroupActive
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.operate.group_deletion import delete_group
from streams.testing import drain
from tests.commands.conftest import Run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


def groups(*topics: str) -> None:
    """The group "mail" on each topic, with one of five messages dead and one to be retried."""
    for topic in topics:

        @consumer(topic, group="mail", batch=5)
        def handle(messages):
            return {messages[0]: Reject("no"), messages[1]: ValueError("later")}

        send_many([Outgoing(topic, n) for n in range(5)])
    drain()


def test_topics_are_listed_with_what_they_hold(parsed: Callable[..., Any], run: Run) -> None:
    Topic.objects.create(name="empty")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    send("orders", 1)
    send("orders", 1, delay=60)
    listed = parsed("ems_topics", "list")
    assert [row.pop("created_at")[-1] for row in listed] == ["Z", "Z"]
    assert listed == [
        {
            "topic": topic,
            "database": "default",
            "access": "read-write",
            "partitions": 1,
            "inbox": inbox,
            "sequenced": log,
            "kept": log,
            "retention": "for ever (default)",
            "retention_seconds": None,
        }
        for topic, inbox, log in (("empty", 0, 0), ("orders", 2, 3))
    ]
    head, *rows = run("ems_topics", "list").splitlines()
    assert head.split()[:2] == ["topic", "access"]
    assert rows[0].split() == [
        "empty",
        "read-write",
        "1",
        "0",
        "0",
        "0",
        "for",
        "ever",
        "(default)",
    ]


def test_how_far_a_broadcast_group_is_is_a_dash(parsed: Callable[..., Any], run: Run) -> None:
    consumer("orders", group="cache", mode="broadcast")(print)
    send("orders", 1)
    drain()
    (row,) = parsed("ems_groups", "list")
    assert (row["mode"], row["behind"], row["age_seconds"]) == ("broadcast", None, None)
    _head, line = run("ems_groups", "list").splitlines()
    assert " ".join(line.split()) == "cache orders broadcast idle – 0 – – 0 0 0 –"


def test_groups_are_listed_with_their_lag(parsed: Callable[..., Any]) -> None:
    groups("orders")
    send("orders", 1)
    sequence("default")
    (row,) = parsed("ems_groups", "list")
    assert row.pop("age_seconds") > 0
    assert row == {
        "database": "default",
        "group": "mail",
        "topic": "orders",
        "mode": "cluster",
        "rate": "",
        "ordered": False,
        "paused": False,
        "blocked_partitions": 0,
        "reset_at": None,
        "state": "no consumer",
        "trouble": ["no consumer", "dead letters"],
        "consumers": 0,
        "behind": 1,
        "clear_seconds": None,
        "published_per_second": None,
        "consumed_per_second": None,
        "open": 0,
        "retries": 1,
        "dead": 1,
        "blocked_by": None,
        "attempt": None,
        "next_attempt": None,
        "error": None,
    }


def test_that_a_group_is_ordered_is_said(parsed: Callable[..., Any]) -> None:
    consumer("orders", group="ledger", ordered=True)(print)
    send("orders", 1)
    drain()
    assert [row["mode"] for row in parsed("ems_groups", "list")] == ["ordered"]


def test_the_state_of_a_group_is_that_of_its_consumers(parsed: Callable[..., Any]) -> None:
    groups("orders")
    group = ConsumerGroup.objects.get()
    Consumer.objects.create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    assert parsed("ems_groups", "list")[0]["state"] == "running"
    ConsumerGroup.objects.update(paused=True)
    assert parsed("ems_groups", "list")[0]["state"] == "paused"


def test_groups_of_one_topic_can_be_listed(parsed: Callable[..., Any]) -> None:
    groups("orders", "flights")
    topics = [row["topic"] for row in parsed("ems_groups", "list")]
    assert sorted(topics) == ["flights", "orders"]
    assert [r["topic"] for r in parsed("ems_groups", "list", "--topic", "orders")] == ["orders"]
    with pytest.raises(CommandError, match="no group any name on nowhere"):
        parsed("ems_groups", "list", "--topic", "nowhere")


def test_a_group_is_paused_and_resumed_however_often(parsed: Callable[..., Any]) -> None:
    groups("orders", "flights")
    for changed in (True, False):
        assert parsed("ems_groups", "pause", "mail", "--topic", "orders") == [
            {"group": "mail", "topic": "orders", "paused": True, "changed": changed}
        ]
    paused = dict(ConsumerGroup.objects.values_list("topic__name", "paused"))
    assert paused == {"orders": True, "flights": False}
    for changed in (True, False):
        resumed = parsed("ems_groups", "resume", "mail")
        assert [(one["topic"], one["changed"]) for one in resumed] == [
            ("flights", False),
            ("orders", changed),
        ]
    assert not ConsumerGroup.objects.filter(paused=True).exists()


def test_deleting_a_group_shows_what_it_has_and_leaves_others_alone(
    parsed: Callable[..., Any], run: Run
) -> None:
    groups("orders", "flights")
    contents = {
        "cursors": 1,
        "held keys": 0,
        "rate buckets": 0,
        "rate buckets of keys": 0,
        "retries": 1,
        "dead letters": 1,
        "deliveries": 1,
        "consumers": 0,
    }
    asked = ("ems_groups", "delete", "mail", "--topic", "orders")
    preview = {"group": "mail", "topic": "orders", "done": False, "contents": contents}
    assert parsed(*asked, "--dry-run") == preview
    text = "deleted, with 1 cursor, 1 retry, 1 dead letter, 1 delivery"
    assert run(*asked, "--dry-run").startswith(f"would delete mail on orders:\n  {text}")
    assert ConsumerGroup.objects.count() == 2
    assert parsed(*asked, "--yes") == {**preview, "done": True}
    for model in (ConsumerGroup, Cursor, RetryMessage, DeadMessage, Delivery):
        assert model.objects.count() == 1  # those of the other
    with pytest.raises(CommandError, match="There is no group mail on orders"):
        run(*asked)


def test_a_group_on_several_topics_is_not_deleted_by_its_name_alone(run: Run) -> None:
    groups("orders", "flights")
    with pytest.raises(CommandError, match=r"say which with --topic \(flights, orders\)"):
        run("ems_groups", "delete", "mail", "--yes")
    assert ConsumerGroup.objects.count() == 2


def test_a_group_with_a_live_consumer_is_not_deleted(run: Run) -> None:
    groups("orders")
    group = ConsumerGroup.objects.get()
    client = Consumer.objects.create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    with pytest.raises(CommandError, match="stop them first"):
        run("ems_groups", "delete", "mail", "--yes")
    assert Cursor.objects.count() == 1
    client.delete()
    run("ems_groups", "delete", "mail", "--yes")
    assert not Cursor.objects.exists()


def test_a_consumer_that_comes_while_its_group_is_deleted_keeps_it(run: Run) -> None:
    groups("orders")
    group = ConsumerGroup.objects.get()

    def come(rows: int) -> None:
        Consumer.objects.get_or_create(
            client_id="me", group=group, defaults={"lease_until": UtcNow(LEASE)}
        )

    with pytest.raises(GroupActive):
        delete_group(group, come)
    assert Cursor.objects.get().next_offset == 5  # it reads on
    assert RetryMessage.objects.exists()
    Consumer.objects.all().delete()
    run("ems_groups", "delete", "mail", "--yes")
    assert not ConsumerGroup.objects.exists()


def test_a_deletion_that_was_broken_off_can_be_repeated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups("orders")

    def break_off(rows: int) -> None:
        if rows == 2:
            raise KeyboardInterrupt

    group = ConsumerGroup.objects.get()
    with pytest.raises(KeyboardInterrupt):
        delete_group(group, break_off)
    assert not Delivery.objects.exists()
    assert RetryMessage.objects.exists()
    # Until it is deleted it is a group that reads on, and nothing is purged that it has not read.
    send_many([Outgoing("orders", n) for n in range(2)])
    drain("mail")
    assert Cursor.objects.get().next_offset == 7
    Consumer.objects.all().delete()
    run("ems_groups", "delete", "mail", "--yes")
    for model in (ConsumerGroup, Cursor, RetryMessage, DeadMessage, Delivery):
        assert not model.objects.exists()

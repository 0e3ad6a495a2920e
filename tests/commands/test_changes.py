"""What the pages of the admin change, the commands change: same fields, same validation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError

from streams import Outgoing, Reject, consumer, send_many
from streams.admin.pages.group import ConsumerGroupAdmin
from streams.admin.pages.topic import TopicAdmin
from streams.conf import DEFAULTS
from streams.errors import InvalidValue
from streams.log.sequencer import sequence
from streams.models import Consumer, ConsumerGroup, Delivery, SystemConfig, Topic, UtcNow
from streams.models.consumer import LEASE
from streams.operate.changes import CHANGEABLE, MEANINGS, set_setting
from streams.runtime_settings import system
from streams.testing import drain
from tests.commands.conftest import Run
from tests.consuming import Process

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

Parsed = Callable[..., Any]


@pytest.fixture
def group() -> ConsumerGroup:
    topic = Topic.objects.create(name="orders")
    return ConsumerGroup.objects.create(topic=topic, name="mail", max_retries=3)


def test_the_pages_and_the_commands_have_the_same_fields() -> None:
    assert set(TopicAdmin.fields) == {"name", *CHANGEABLE[Topic]}
    assert ConsumerGroupAdmin.overrides == CHANGEABLE[ConsumerGroup]
    assert set(MEANINGS) == set(DEFAULTS)


def test_a_topic_is_changed(run: Run, parsed: Parsed, group: ConsumerGroup) -> None:
    said = run(
        *["ems_topics", "set", "orders", "--access", "read-only", "--retention-seconds", "7d"]
    )
    assert said.splitlines() == [
        "orders: access was read-write, is read-only",
        "orders: retention_seconds was none, is 604800",
    ]
    words = ("--retention-seconds", "none", "--archive", "yes", "--retention-count", "5")
    changed = parsed("ems_topics", "set", "orders", *words)["changed"]
    assert changed == {
        "retention_seconds": {"from": 604800, "to": None},
        "retention_count": {"from": None, "to": 5},
        "archive": {"from": False, "to": True},
    }
    topic = Topic.objects.get()
    assert (topic.access, topic.retention_seconds, topic.retention_count) == ("read-only", None, 5)
    assert "set already" in run("ems_topics", "set", "orders", "--archive", "yes")
    assert parsed("ems_topics", "set", "orders")["retention_count"] == 5


def test_a_group_is_changed(run: Run, parsed: Parsed, group: ConsumerGroup) -> None:
    words = ("--retry-policy", " 10s, 1m ", "--consume-timeout", "5m", "--max-retries", "none")
    changed = parsed("ems_groups", "set", "mail", *words)["changed"]
    assert changed == {
        "max_retries": {"from": 3, "to": None},
        "retry_policy": {"from": "", "to": "10s, 1m"},
        "consume_timeout": {"from": None, "to": 300},
    }
    run("ems_groups", "set", "mail", "--retry-policy", "none", "--batch", "7")
    group.refresh_from_db()
    assert (group.retry_policy, group.batch, group.paused) == ("", 7, False)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("ems_topics set orders --access closed", "invalid choice"),
        ("ems_topics set orders --access read-only --retention-count 0", "At least 1"),
        ("ems_topics set orders --retention-seconds 0.5s", "whole seconds"),
        ("ems_topics set orders --retention-seconds soon", "not a duration"),
        ("ems_topics set nowhere --archive yes", "There is no topic nowhere"),
        ("ems_groups set mail --batch 1001", "batch: .*less than or equal to 1000"),
        ("ems_groups set mail --batch many", "batch: .*integer"),
        ("ems_groups set mail --batch 5 --retry-policy soon", "soon"),
        ("ems_config set consumerThreads 0", "value: This number is too small"),
        ("ems_config set consumerThreads 1.5", "type int"),
        ("ems_config set consumerThreads many", "is not JSON"),
        ("ems_config set noSuchThing 1", "name: .*noSuchThing"),
        ("ems_config unset noSuchThing", "no setting of this name"),
    ],
)
def test_a_bad_value_changes_nothing(run: Run, group: ConsumerGroup, words: str, text: str) -> None:
    before = [*Topic.objects.values(), *ConsumerGroup.objects.values()]
    with pytest.raises(CommandError, match=text):
        run(*words.split())
    assert [*Topic.objects.values(), *ConsumerGroup.objects.values()] == before
    assert not SystemConfig.objects.exists()


def test_the_log_says_who_changed_what(
    run: Run, group: ConsumerGroup, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "streams.operate"):
        run("ems_topics", "set", "orders", "--archive", "yes")
        run("ems_config", "set", "consumerThreads", "7")
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("orders: archive was False and is True, set by ")
    assert first.endswith("(ems_topics)")
    assert second.startswith("consumerThreads is 7, set by ")


def test_run_time_settings_are_set_listed_and_unset(run: Run, parsed: Parsed) -> None:
    run("ems_config", "set", "autoCreateTopic", "false")
    run("ems_config", "set", "consumerThreads", "9")
    run("ems_config", "set", "consumerThreads", "8")
    assert system("consumerThreads", "default") == 8
    rows = {row["name"]: row for row in parsed("ems_config", "list")}
    assert set(rows) == set(DEFAULTS)
    assert (rows["autoCreateTopic"]["value"], rows["autoCreateTopic"]["default"]) == (False, True)
    assert rows["consumerThreads"]["changed_at"]
    assert not rows["consumerBatchSize"]["changed_at"]
    assert (
        run("ems_config", "unset", "consumerThreads") == "consumerThreads has its default again\n"
    )
    assert system("consumerThreads", "default") == DEFAULTS["consumerThreads"]
    assert parsed("ems_config", "unset", "consumerThreads")["unset"] is False


def test_a_setting_of_another_version_can_be_unset(run: Run) -> None:
    SystemConfig.objects.create(name="gone", value=1)
    with pytest.raises(InvalidValue):
        set_setting("gone", 2, "default", "me")
    run("ems_config", "unset", "gone")
    assert not SystemConfig.objects.exists()


def test_consumers_are_listed_with_what_they_hold(parsed: Parsed) -> None:
    consumer("orders", group="mail")(print)
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    process = Process("mail")
    process.claim(3)
    (open_,) = parsed("ems_groups", "deliveries", "mail", "--open")
    assert (open_["place"], open_["state"], open_["finished_at"]) == ("orders/0@0-2", "START", None)
    group = ConsumerGroup.objects.get()
    Consumer.objects.create(client_id="gone", group=group, lease_until=UtcNow(-LEASE))
    rows = {row["client"]: row for row in parsed("ems_groups", "consumers")}
    assert not rows.pop("gone")["live"]
    (row,) = rows.values()
    assert (row["live"], row["group"], row["topic"], row["open"]) == (True, "mail", "orders", 3)


def test_deliveries_and_retries_are_listed(parsed: Parsed) -> None:
    for topic in ("orders", "flights"):

        @consumer(topic, group="mail", batch=5)
        def handle(messages):
            return {messages[0]: Reject("no"), messages[1]: ValueError("later")}

        send_many([Outgoing(topic, n) for n in range(5)])
    drain()
    rows = parsed("ems_groups", "deliveries", "mail")
    assert {row["place"] for row in rows} == {"orders/0@0-4", "flights/0@0-4"}
    (row,) = parsed("ems_groups", "deliveries", "mail", "--topic", "orders")
    assert (row["state"], row["failed"], row["kind"], row["attempt"]) == ("RETRY", 2, "new", 1)
    assert len(parsed("ems_groups", "deliveries", "--limit", "1")) == 1
    assert parsed("ems_groups", "deliveries", "--open") == []
    (retry,) = parsed("ems_groups", "retries", "mail", "--topic", "orders")
    assert (retry["place"], retry["attempt"], retry["state"]) == ("orders/0@1", 2, "waiting")
    assert "later" in retry["error"]
    assert len(parsed("ems_groups", "retries")) == 2
    assert Delivery.objects.count() == 2

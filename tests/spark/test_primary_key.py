"""Messages are read along the primary key where that pays, and exactly those that are asked for."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.source import primary_key
from sparkjobs.source.primary_key import span
from sparkjobs.source.splits import Range
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic
from tests.spark.direct import Reading, Sent, sent
from tests.tiers import VENDOR

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

SOON = datetime(2020, 1, 1, tzinfo=UTC)


def interleaved(partitions: int, messages: int) -> None:
    """Send as many messages to each partition, one after the other."""
    for number in range(partitions):
        Topic.objects.create(name=f"t{number:03}")
    send_many([Outgoing(f"t{n % partitions:03}", n) for n in range(partitions * messages)])
    sequence("default")


def in_steps(step: int) -> None:
    """Let ids be as in a cluster that counts them in steps, for each of its primaries its own."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ems_msg SET id = -id")
        cursor.execute("UPDATE ems_msg SET id = -id * %s", [step])


def late(share: float) -> None:
    """Let this share of the inbox be sequenced after the rest, as delayed or late messages are."""
    chosen = random.Random(5)  # noqa: S311 - no secret
    ids = [id_ for id_ in Message.objects.values_list("pk", flat=True) if chosen.random() < share]
    held = Message.objects.filter(pk__in=ids)
    held.update(due_at=datetime(2999, 1, 1, tzinfo=UTC))
    sequence("default")
    held.update(due_at=SOON)
    sequence("default")


def more(*values: float) -> Any:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("share", "delayed"),
    [
        *((0.0, 0.5), (primary_key.SHARE, 0.03), (2.0, 0.0)),
        *(more(0.0, 0.0), more(0.0, 0.03), more(2.0, 0.03), more(2.0, 0.5)),
        *(more(primary_key.SHARE, 0.0), more(primary_key.SHARE, 0.5)),
    ],
)
def test_whatever_way_is_chosen_each_message_is_read_once_and_is_what_it_was(
    config: Config, monkeypatch: pytest.MonkeyPatch, share: float, delayed: float
) -> None:
    monkeypatch.setattr(primary_key, "SHARE", share)
    for number in range(5):
        Topic.objects.create(name=f"t{number}")
    skewed = random.Random(3)  # noqa: S311 - no secret
    names = [f"t{min(skewed.randrange(9), 4)}" for _ in range(400)]
    send_many([Outgoing(name, n) for n, name in enumerate(names)])
    late(delayed)
    expected = sorted(
        Message.objects.values_list("partition__topic__name", "offset", "id"),
    )
    assert len(expected) == 400
    for rows in (7, 60, 1000):
        read = Reading(config, "topic", "offset", "message_id", split_rows=rows).rows()
        assert sorted(tuple(row.values()) for row in read) == expected
    some = Reading(config, "offset", "body", topic="t4", start=5, end=50, split_rows=20).rows()
    bodies = Message.objects.filter(partition__topic__name="t4", offset__range=(5, 49))
    found = {row["offset"]: row["body"] for row in some}
    assert found == {message.offset: bytes(message.body) for message in bodies}


@pytest.mark.parametrize("step", [1, 7])
def test_one_topic_of_many_is_read_by_its_index_and_all_along_the_primary_key(
    config: Config, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    interleaved(10, 30)
    in_steps(step)
    seen = Sent(monkeypatch)
    assert Reading(config, "offset", topic="t004").offsets() == [*range(30)]
    assert seen.statements == {"PRIMARY": 0, "log": 1}
    assert len(Reading(config, "topic").rows()) == 300
    assert seen.statements == {"PRIMARY": 1, "log": 1}


def test_what_the_server_sends_of_many_partitions_grows_with_the_messages_not_with_the_tasks(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    interleaved(40, 50)
    seen = Sent(monkeypatch)
    read = Reading(config, "topic", "offset", split_rows=100)
    assert 20 <= len(read.plan()) <= 30
    assert len(read.rows()) == 2000
    assert seen.rows["PRIMARY"] < 1.5 * 2000
    assert seen.rows["log"] < 100  # at the edges
    seen.rows["PRIMARY"] = 0
    bounds = {p.pk: [10, 30] for p in Partition.objects.all()}
    assert len(Reading(config, "offset", bounds=json.dumps(bounds)).rows()) == 800
    assert seen.rows["PRIMARY"] < 1.5 * 800


def test_a_few_delayed_messages_are_read_by_the_index_and_the_others_are_not(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Topic.objects.create(name="orders")
    send_many([Outgoing("orders", n, delay=3600) for n in range(3)])
    Topic.objects.create(name="others")
    send_many([Outgoing("others", n) for n in range(2000)])
    send_many([Outgoing("orders", n) for n in range(100)])
    sequence("default")
    Message.objects.filter(offset=None).update(due_at=SOON)
    sequence("default")
    send_many([Outgoing("orders", n) for n in range(100)])
    sequence("default")
    assert Partition.objects.get(topic=held).next_offset == 203
    seen = Sent(monkeypatch)
    assert Reading(config, "offset", topic="orders").offsets() == [*range(203)]
    assert seen.rows == {"PRIMARY": 200, "log": 3}


def test_after_a_truncate_ids_say_nothing_and_the_index_is_used(config: Config) -> None:
    partition = sent(messages=20)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ems_msg SET id = id + 1000000 WHERE `offset` < 10")
    assert Reading(config, "offset").offsets() == [*range(20)]
    with connected(config) as own:
        assert span(own, [Range(0, 20, partition.pk)]) is None
        assert span(own, [Range(50, 60, partition.pk)]) is None


@pytest.mark.mysql
def test_what_is_left_is_found_in_the_index_of_offsets_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(messages=300)
    send_many([Outgoing("orders", n, delay=3600) for n in range(3)])
    sent(messages=300)
    Message.objects.filter(offset=None).update(due_at=SOON)
    sequence("default")
    seen = Sent(monkeypatch)
    monkeypatch.setattr(primary_key, "SAMPLES", 4)  # none of them a delayed one
    assert Reading(config, "offset", "body").offsets() == [*range(603)]
    plans = []
    for statement, values in seen.asked:
        with connection.cursor() as cursor:
            # MySQL 9 explains as a tree unless told otherwise; MariaDB knows no form by name.
            form = "FORMAT=TRADITIONAL" if VENDOR == "mysql" else ""
            cursor.execute(f"EXPLAIN {form} {statement}", values)
            names = [column[0].lower() for column in cursor.description or ()]
            plans.append(dict(zip(names, cursor.fetchone(), strict=True)))
    assert [plan["key"] for plan in plans] == ["PRIMARY", "ems_msg_log"]
    assert "Using index condition" in plans[1]["extra"]

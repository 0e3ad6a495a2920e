"""The source "ems" gives what is in the database, all of it, and nothing that has been purged.

Most read it without Spark (direct.py), which takes a tenth of the time.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sparkjobs.config import Config
from sparkjobs.database import fetch
from sparkjobs.errors import BadOption, MessagesPurged
from sparkjobs.instants import now
from streams import Outgoing, consumer, send, send_many
from streams.errors import Reject
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Delivery, Message, Partition, RetryMessage, Topic
from streams.testing import drain
from tests.concurrency.locks import held_before, wait_until_one_waits
from tests.sessions import Threads
from tests.spark.direct import Reading

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def sent(topic: str = "orders", messages: int = 10, **named: Any) -> Partition:
    send_many([Outgoing(topic, {"n": n}, **named) for n in range(messages)])
    sequence("default")
    return Partition.objects.get(topic__name=topic)


def offsets(frame: Any) -> list[int]:
    return sorted(frame.toArrow()["offset"].to_pylist())


def test_every_column_of_a_message_is_read_as_it_was_sent(read) -> None:
    send("orders", {"né": [1, None]}, key="Zoë", tag="new", headers={"trace": "a b"})
    send("orders", b"\x00\xff'\\%s", delay=timedelta(microseconds=1))
    send("orders", "")
    sequence("default")
    rows = {row["offset"]: row for row in read(topic="orders").toArrow().to_pylist()}
    assert len(rows) == 3
    for message in Message.objects.select_related("partition__topic"):
        row = rows[message.offset]
        assert row["partition_id"] == message.partition_id
        assert (row["topic"], row["partition"]) == ("orders", 0)
        assert row["message_id"] == message.pk
        assert row["body"] == bytes(message.body)
        for name in ("key", "tag", "body_type", "size", "producer", "created_at", "sequenced_at"):
            assert row[name] == getattr(message, name), name
        assert row["headers"] == message.headers or json.loads(row["headers"]) == message.headers
        assert row["timestamp"] == message.sequenced_at
    assert sorted(row["delayed"] for row in rows.values()) == [False, False, True]


def test_all_topics_are_read_and_what_waits_in_the_inbox_is_not(config: Config) -> None:
    sent("orders", 3)
    sent("flights", 2)
    send("flights", 1, delay=3600)
    names = [row["topic"] for row in Reading(config, "topic", "size").rows()]
    assert sorted(names) == ["flights"] * 2 + ["orders"] * 3


def test_a_split_range_is_read_once_and_whole(read) -> None:
    sent(messages=23)
    frame = read(topic="orders", columns=["offset"], split_rows=5)
    assert frame.rdd.getNumPartitions() == 5
    assert offsets(frame) == list(range(23))


def test_bounds_are_offsets_of_each_partition(config: Config) -> None:
    orders, flights = sent("orders", 10), sent("flights", 10)
    bounds = json.dumps({str(orders.pk): [2, 5], str(flights.pk): [9, 10]})
    assert Reading(config, "offset", bounds=bounds).offsets() == [2, 3, 4, 9]
    assert Reading(config, "offset", topic="orders", start=7, end=99).offsets() == [7, 8, 9]


def test_bounds_are_times_and_the_search_steps_over_a_hole(config: Config) -> None:
    partition = sent(messages=20)
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for message in Message.objects.all():
        at = start + timedelta(seconds=message.offset or 0)
        Message.objects.filter(pk=message.pk).update(sequenced_at=at)
    Message.objects.filter(partition=partition, offset__in=(9, 10)).delete()
    zone = {"since": "2026-03-01T12:00:05", "until": "2026-03-01T15:00:12+03:00"}
    reading = Reading(config, "offset", topic="orders", holes="skip", **zone)
    assert reading.offsets() == [5, 6, 7, 8, 11]


@pytest.mark.mysql
def test_an_end_that_has_passed_waits_for_messages_that_are_not_committed(
    config: Config, connection: Any, in_thread: Threads
) -> None:
    sent("flights", 3)
    sent("orders", 5)
    send_many([Outgoing("orders", n) for n in range(5)])
    with held_before(in_thread, "UPDATE `ems_partition`", lambda: sequence("default")):
        until = now(connection).isoformat()  # all have their times, and five are not committed
        reading = Reading(config, "offset", topic="orders", until=until)
        planned = in_thread(reading.plan)
        ((database,),) = fetch(connection, "SELECT DATABASE()")
        wait_until_one_waits(database)
    assert sum(part.rows for split in planned.result(60) for part in split.ranges) == 10
    assert reading.offsets() == list(range(10))


def test_bodies_of_a_batch_are_bounded_in_bytes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.source import arrow, reading
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES
    from sparkjobs.source.splits import Range, Split

    partition = sent(messages=100)
    monkeypatch.setattr(arrow, "BATCH_BYTES", 40)
    split = Split((Range(0, 100, partition.pk, "orders", 0),))
    rows = [
        batch.num_rows
        for batch in reading.batches(config, SourceRequest(config.path), MESSAGES, split)
    ]
    assert sum(rows) == 100
    assert max(rows) <= 32  # one call into the driver, never the ten thousand rows of a batch


def test_asking_for_what_has_been_purged_is_an_error_unless_the_rest_is_enough(
    config: Config,
) -> None:
    partition = sent(messages=10)
    Message.objects.filter(partition=partition, offset__lt=4).delete()
    Partition.objects.filter(pk=partition.pk).update(first_offset=4)
    assert Reading(config, "offset", topic="orders").offsets() == [4, 5, 6, 7, 8, 9]
    with pytest.raises(MessagesPurged, match=r"offsets from 2 on .* before 4 have been purged"):
        Reading(config, topic="orders", start=2).rows()
    reading = Reading(config, "offset", topic="orders", start=2, purged="skip")
    assert reading.offsets() == [*range(4, 10)]


def test_a_reader_that_stops_early_leaves_no_query_behind(read) -> None:
    sent(messages=500)
    assert len(read(topic="orders").limit(3).collect()) == 3
    assert read(topic="orders", columns=["offset"]).count() == 500


def test_wrong_options_say_what_is_wrong(config: Config) -> None:
    sent()
    for options, said in (
        ({"topic": "nothing"}, "no topic 'nothing'"),
        ({"tabel": 1}, "unknown options: tabel"),
        ({"start": "x"}, "start must be a number"),
        ({"since": "noon"}, "since must be an ISO time"),
        ({"bounds": "{]"}, "bounds must be like"),
        ({"bounds": '{"99999": [0, 1]}'}, "partitions that are not there"),
        ({"purged": "maybe"}, "purged must be fail or skip"),
        ({"holes": "maybe"}, "holes must be fail or skip"),
        ({"mode": "dropMalformed"}, "mode must be FAILFAST or PERMISSIVE, not 'DROPMALFORMED'"),
    ):
        with pytest.raises(BadOption, match=said):
            Reading(config, **options).rows()


def test_a_column_that_is_not_there_is_refused(spark: Any, config: Config) -> None:
    reader = spark.read.format("ems").option("config", config.path)
    with pytest.raises(Exception, match="no column 'colour': there are partition_id, topic"):
        reader.schema("colour string").load().count()
    with pytest.raises(Exception, match="offset is bigint"):
        reader.schema("offset string").load().count()


def test_columns_are_chosen_by_an_option_also_in_a_view_of_sql(
    spark: Any, config: Config, read
) -> None:
    sent(messages=3)
    frame = read(topic="orders", columns="size, offset")
    assert frame.columns == ["offset", "size"]  # in the order of the table
    assert offsets(frame) == [0, 1, 2]
    options = f"config '{config.path}', topic 'orders', columns 'offset,tag'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW few USING ems OPTIONS ({options})")
    assert spark.table("few").columns == ["offset", "tag"]
    assert spark.sql("SELECT MAX(offset) FROM few").collect()[0][0] == 2
    with pytest.raises(Exception, match="no column 'colour': there are partition_id, topic"):
        read(columns="size,colour")


def handled() -> None:
    @consumer("orders", group="mail", batch=4)
    def handle(received):
        return {m: Reject("odd") if m.offset == 1 else ValueError("no") for m in received[1:3]}

    sent(messages=4)
    drain()


def test_deliveries_retries_and_dead_letters_are_read_with_their_names(config: Config) -> None:
    handled()
    for table, model, times in (
        ("deliveries", Delivery, ("claimed_at", "started_at", "deadline", "finished_at")),
        ("retries", RetryMessage, ("due_at",)),
        ("dead", DeadMessage, ("sent_at", "died_at", "redriven_at")),
    ):
        rows = Reading(config, table=table).rows()
        objects = {o.pk: o for o in model.objects.all()}
        assert rows
        assert {row["id"] for row in rows} == set(objects), table
        for row in rows:
            row_object: Any = objects[row["id"]]
            assert (row["topic"], row["partition"], row["group"]) == ("orders", 0, "mail")
            for name in times:
                assert row[name] == getattr(row_object, name), (table, name)
        assert len(Reading(config, table=table, topic="orders").rows()) == len(rows)
        after = Reading(config, "id", table=table, start=min(objects) + 1)
        assert len(after.rows()) == len(rows) - 1


def test_deliveries_are_bound_by_the_time_they_ended(config: Config) -> None:
    handled()
    (delivery,) = Delivery.objects.filter(kind="new")
    at = delivery.finished_at
    assert at
    ended = [(at, 1), (at + timedelta(microseconds=1), 0)]
    for since, rows in ended:
        found = Reading(config, "id", table="deliveries", since=since.isoformat()).rows()
        assert len(found) == rows
    assert not Reading(config, "id", table="deliveries", until=at.isoformat()).rows()


def test_a_topic_is_found_by_its_exact_name(config: Config) -> None:
    for name in ("007", "orders", "Orders"):
        sent(name, 1)
    assert Topic.objects.count() == 3
    assert Reading(config, "topic", topic="Orders").rows() == [{"topic": "Orders"}]


def test_options_are_refused_before_anything_is_read() -> None:
    from sparkjobs.source.request import SourceRequest

    with pytest.raises(BadOption, match="bounds are of messages"):
        SourceRequest.of({"table": "retries", "bounds": '{"1": [0, 1]}'})

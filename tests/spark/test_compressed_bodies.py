"""Spark sees bodies as they were sent, writes them as a send does, and names a damaged one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from monitoring.models import ReplayedMessage, StagedMessage
from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import UnreadableBody
from streams import Outgoing, Reject, consumer, send_many
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Message, Partition, Topic
from streams.rules.stored_body import COMPRESSED_FROM
from streams.testing import drain
from tests.large_bodies import RAW, VALUES
from tests.spark.direct import Reading

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def stored() -> list[tuple[Any, ...]]:
    rows = Message.objects.order_by("pk").values_list("body", "body_type", "size")
    return [(bytes(body), *rest) for body, *rest in rows]


@pytest.fixture
def by_send() -> list[tuple[Any, ...]]:
    send_many([Outgoing("orders", value) for value in VALUES])
    sequence("default")
    return stored()


COLUMNS = [("offset", "body"), ("offset", "body_type"), ("offset", "body", "body_type"), ()]


@pytest.mark.parametrize("topics", [1, 2])
def test_messages_are_read_as_they_were_sent(config: Config, by_send: Any, topics: int) -> None:
    if topics == 2:
        send_many([Outgoing("flights", value) for value in VALUES])
        sequence("default")
    for columns in COLUMNS:
        rows = sorted(Reading(config, *columns).rows(), key=lambda row: int(row["offset"]))
        assert len(rows) == topics * len(VALUES)
        as_sent(rows, columns)


def as_sent(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    for row in rows:
        assert not columns or row.keys() == {*columns}
        raw, body_type = RAW[row["offset"]]
        assert row.get("body", raw) == raw
        assert row.get("body_type", body_type) == body_type
        assert row.get("size", len(raw)) == len(raw)


def test_dead_letters_are_read_as_they_were_sent(config: Config) -> None:
    @consumer("orders", group="mail", max_retries=0)
    def mail(message: Any) -> None:
        raise Reject("no")

    send_many([Outgoing("orders", value) for value in VALUES])
    drain()
    for columns in COLUMNS:
        rows = Reading(config, *columns, table="dead").rows()
        assert {row["offset"] for row in rows} == {*range(len(VALUES))}
        as_sent(rows, columns)


def test_the_sink_writes_what_a_send_writes(config: Config, by_send: Any) -> None:
    from sparkjobs.sink.commit import commit
    from sparkjobs.sink.options import SinkOptions
    from sparkjobs.sink.staging import stage

    Message.objects.all().delete()
    columns = {"body": [raw for raw, _ in RAW], "body_type": [kind for _, kind in RAW]}
    batch = pa.RecordBatch.from_pydict(columns)
    part = stage([batch], config, SinkOptions(topic="orders"), "sink q", 0)
    assert StagedMessage.objects.count() == len(VALUES)
    commit(config, "sink q", 0, [part], None)
    assert stored() == by_send


def test_a_replay_writes_what_a_send_writes(config: Config, by_send: Any) -> None:
    from sparkjobs.archive import staging
    from sparkjobs.placement import Placement

    rows = Reading(config).rows()
    Message.objects.all().delete()
    (partition,) = Partition.objects.all()
    assert {row["partition_id"] for row in rows} == {partition.pk}
    batch = pa.RecordBatch.from_pylist(sorted(rows, key=lambda row: int(row["offset"])))
    placement = Placement("orders", 1, "")
    list(staging.stage_batches(iter([batch]), config, "mark", placement))
    assert ReplayedMessage.objects.count() == len(VALUES)
    with connected(config) as connection:
        while staging.send(connection, "mark", "orders", Topic.objects.get().pk):
            pass
    assert stored() == by_send


# -- what cannot be read --------------------------------------------------------------------------

LARGE = "x" * COMPRESSED_FROM


def with_a_damaged_one(*topics: str, **damage: Any) -> None:
    """Send three bodies to each of these topics; of the last one, damage that at offset 1."""
    for topic in topics:
        send_many([Outgoing(topic, f"{n}{LARGE}") for n in range(3)])
    sequence("default")
    Message.objects.filter(partition__topic__name=topics[-1], offset=1).update(**damage)


DAMAGE = [
    ({"body": b"no zlib"}, "The stored body is damaged: Error -3"),
    ({"body_type": "zstd"}, "The stored body is of an unknown type: 'zstd'"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
@pytest.mark.parametrize("topics", [("orders",), ("flights", "orders")])
def test_a_body_that_cannot_be_read_fails_the_read_and_is_named(
    config: Config, topics: tuple[str, ...], damage: Any, said: str
) -> None:
    with_a_damaged_one(*topics, **damage)
    (message,) = Message.objects.filter(**damage)
    for columns in ((), ("value",), ("offset", "body")):
        with pytest.raises(UnreadableBody) as raised:
            Reading(config, *columns).rows()
        assert str(raised.value).startswith(f"orders/0: offset 1 (message {message.pk}): {said}")
        assert str(raised.value).endswith(
            "with mode=PERMISSIVE the body is null, and the rest is read"
        )
        # Who reads other messages reads all of these, and so does what reads no bodies.
        assert len(Reading(config, *columns, topic="orders", end=1).rows()) == 1
    assert len(Reading(config, "offset", "body_type", "size").rows()) == 3 * len(topics)


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
@pytest.mark.parametrize("topics", [("orders",), ("flights", "orders")])
def test_a_body_that_cannot_be_read_is_null_where_that_is_asked_for(
    config: Config, topics: tuple[str, ...], damage: Any, said: str
) -> None:
    with_a_damaged_one(*topics, **damage)
    rows = Reading(config, mode="permissive").rows()
    assert len(rows) == 3 * len(topics)
    for row in rows:
        if (row["topic"], row["offset"]) == ("orders", 1):
            assert row["body"] is None
            assert row["body_error"].startswith(said)
            assert row["size"] == len(LARGE) + 1
        else:
            assert row["body"] == f"{row['offset']}{LARGE}".encode()
            assert row["body_error"] is None
    (bad,) = Reading(config, "body_error", topic="orders", start=1, end=2, mode="PERMISSIVE").rows()
    assert bad.keys() == {"body_error"}
    assert bad["body_error"].startswith(said)


def test_of_a_dead_letter_too(config: Config) -> None:
    @consumer("orders", group="mail", max_retries=0)
    def mail(message: Any) -> None:
        raise Reject("no")

    send_many([Outgoing("orders", LARGE), Outgoing("orders", LARGE)])
    drain()
    letter = DeadMessage.objects.get(offset=1)
    DeadMessage.objects.filter(pk=letter.pk).update(body=b"no zlib")
    with pytest.raises(UnreadableBody, match=rf"orders/0: offset 1 \(dead letter {letter.pk}\): "):
        Reading(config, "id", "body", table="dead").rows()
    rows = Reading(config, table="dead", mode="PERMISSIVE").rows()
    assert {row["offset"]: row["body"] for row in rows} == {0: LARGE.encode(), 1: None}
    assert [row["offset"] for row in rows if row["body_error"]] == [1]


def test_a_query_of_spark_fails_by_it_or_goes_on(read: Any) -> None:
    with_a_damaged_one("orders", body=b"no zlib")
    assert "body_error" not in read(topic="orders").columns
    with pytest.raises(Exception, match="UnreadableBody: orders/0: offset 1"):
        read(topic="orders").collect()
    frame = read(topic="orders", mode="PERMISSIVE")
    assert frame.where("body_error IS NULL AND body IS NOT NULL").count() == 2
    (bad,) = frame.where("body_error IS NOT NULL").select("offset", "body").collect()
    assert (bad["offset"], bad["body"]) == (1, None)


@pytest.mark.exhaustive
def test_a_day_with_such_a_body_is_not_archived_and_other_topics_are(
    spark: Any, config: Config
) -> None:
    from sparkjobs.errors import NotArchived
    from tests.spark.test_archive import DAYS, history, run

    history("flights")
    history("orders")
    bad = Message.objects.get(partition__topic__name="flights", offset=4)
    Message.objects.filter(pk=bad.pk).update(body=b"no zlib")
    with pytest.raises(NotArchived, match=r"UnreadableBody: flights/0: offset 4"):
        run(spark, config)
    archived = Partition.objects.values_list("topic__name", "archived_offset")
    assert dict(archived) == {"flights": 0, "orders": 10}
    Message.objects.filter(pk=bad.pk).update(body=b"")
    assert run(spark, config) == [f"flights {day}: 5 messages archived" for day in DAYS[:2]]

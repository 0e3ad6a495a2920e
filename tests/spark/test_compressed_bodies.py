"""Spark sees bodies as they were sent, and writes them as a send does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from monitoring.models import ReplayedMessage, StagedMessage
from sparkjobs.config import Config
from sparkjobs.database import connected
from streams import Outgoing, Reject, consumer, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic
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


@pytest.mark.parametrize("topics", [1, 2])
@pytest.mark.parametrize(
    "columns", [("offset", "body"), ("offset", "body_type"), ("offset", "body", "body_type"), ()]
)
def test_messages_are_read_as_they_were_sent(
    config: Config, by_send: Any, topics: int, columns: tuple[str, ...]
) -> None:
    if topics == 2:
        send_many([Outgoing("flights", value) for value in VALUES])
        sequence("default")
    rows = sorted(Reading(config, *columns).rows(), key=lambda row: int(row["offset"]))
    assert len(rows) == topics * len(VALUES)
    for row in rows:
        assert not columns or row.keys() == {*columns}
        raw, body_type = RAW[row["offset"]]
        assert row.get("body", raw) == raw
        assert row.get("body_type", body_type) == body_type
        assert row.get("size", len(raw)) == len(raw)


@pytest.mark.parametrize("columns", [("offset", "body"), ("offset", "body_type"), ()])
def test_dead_letters_are_read_as_they_were_sent(config: Config, columns: tuple[str, ...]) -> None:
    @consumer("orders", group="mail", max_retries=0)
    def mail(message: Any) -> None:
        raise Reject("no")

    send_many([Outgoing("orders", value) for value in VALUES])
    drain()
    rows = sorted(
        Reading(config, *columns, table="dead").rows(), key=lambda row: int(row["offset"])
    )
    assert len(rows) == len(VALUES)
    for row in rows:
        assert not columns or row.keys() == {*columns}
        raw, body_type = RAW[row["offset"]]
        assert (row.get("body", raw), row.get("body_type", body_type)) == (raw, body_type)


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

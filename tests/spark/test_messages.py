"""The roll-ups of a run read each message once, however many of them are counted from it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection as django
from django.utils import timezone

from monitoring.models import HotKey, Latency, Traffic
from sparkjobs.config import Config
from sparkjobs.rollup import messages as reading
from sparkjobs.rollup.figures import MESSAGES_OF_KEYS, MESSAGES_OF_LATENCY, MESSAGES_OF_TRAFFIC
from sparkjobs.rollup.messages import Messages
from sparkjobs.source import here
from streams.models import ConsumerGroup, Delivery, Message, Partition, Topic
from tests.spark import traffic_of_a_day as day

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


class Frame:
    """A DataFrame that knows of which reads it is."""

    def __init__(self, *reads: Any) -> None:
        self.reads = reads
        self.is_kept = False

    def persist(self) -> Frame:
        self.is_kept = True
        return self

    def unpersist(self) -> None:
        self.is_kept = False

    def unionByName(self, other: Frame) -> Frame:  # noqa: N802 - Spark's
        return Frame(*self.reads, *other.reads)

    def select(self, *columns: str) -> Frame:
        return Frame(*self.reads)


class Session:
    """Notes what is read."""

    def __init__(self) -> None:
        self.loads: list[dict[str, Any]] = []
        self.frames: list[Frame] = []
        self.read = self

    def format(self, name: str) -> Session:
        return self

    schema = format  # noqa: A003

    def options(self, **given: Any) -> Session:
        self.loads.append(json.loads(given["bounds"]))
        return self

    def load(self) -> Frame:
        self.frames.append(Frame(len(self.loads) - 1))
        return self.frames[-1]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(here, "FEW", 0)
    return Session()


CONFIG = Config("/ems.cnf", "sqlite", "/ems.sqlite3")


@pytest.mark.any_database
def test_all_ranges_are_one_read(session: Any) -> None:
    """To plan a read for each delivery would cost more than to read most of what they have."""
    for keeps in (False, True):
        spans = {1: [(0, 10), (5000, 5010), (90_000, 90_001)], 2: [(7, 9)]}
        Messages(session, CONFIG, keeps=keeps).covering(spans, MESSAGES_OF_LATENCY)
    asked = {"1": [[0, 10], [5000, 5010], [90_000, 90_001]], "2": [[7, 9]]}
    assert session.loads == [asked, asked]


@pytest.mark.any_database
def test_what_was_read_is_not_read_again(session: Any) -> None:
    messages = Messages(session, CONFIG, keeps=True)
    messages.exactly({1: [(100, 200)], 2: [(0, 50)]}, MESSAGES_OF_TRAFFIC, "fail")
    found: Any = messages.covering({1: [(90, 150)], 2: [(10, 20)]}, MESSAGES_OF_LATENCY)
    assert (session.loads[1:], found.reads) == ([{"1": [[90, 100]]}], (0, 1))
    found = messages.covering({1: [(90, 200)]}, MESSAGES_OF_LATENCY)
    assert (len(session.loads), found.reads) == (2, (0, 1))
    found = messages.covering({3: [(0, 5)]}, MESSAGES_OF_LATENCY)
    assert (session.loads[2:], found.reads) == ([{"3": [[0, 5]]}], (2,))
    # The traffic counts whole minutes: what it asks for it gets, and nothing beside.
    found = messages.exactly({1: [(195, 300)]}, MESSAGES_OF_TRAFFIC, "fail")
    assert (session.loads[3:], found.reads) == ([{"1": [[195, 300]]}], (3,))
    assert not session.frames[0].is_kept
    messages.forget()
    assert not any(frame.is_kept for frame in session.frames)
    messages.covering({1: [(195, 300)]}, MESSAGES_OF_LATENCY)
    assert session.loads[4:] == [{"1": [[195, 300]]}]


@pytest.mark.any_database
def test_a_limited_number_of_messages_is_kept(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "KEPT", 250)
    messages = Messages(session, CONFIG, keeps=True)
    for first in range(0, 600, 100):
        messages.exactly({1: [(first, first + 100)]}, MESSAGES_OF_TRAFFIC, "fail")
    assert [frame.is_kept for frame in session.frames] == [False] * 4 + [True] * 2
    # More than that is never kept, and frees nothing.
    found: Any = messages.covering({1: [(0, 450)]}, MESSAGES_OF_LATENCY)
    assert session.loads[6:] == [{"1": [[0, 400]]}]
    assert found.reads == (4, 6)
    assert [frame.is_kept for frame in session.frames] == [False] * 4 + [True, True, False]
    # Nor is what nobody will read again; what was kept is used.
    found = messages.covering({1: [(550, 650)]}, MESSAGES_OF_KEYS, is_last=True)
    assert session.loads[7:] == [{"1": [[600, 650]]}]
    assert found.reads == (5, 7)
    assert [frame.is_kept for frame in session.frames[4:]] == [True, True, False, False]


@pytest.mark.any_database
def test_little_is_read_in_this_process_and_kept_by_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams import Outgoing, send_many
    from streams.log.sequencer import sequence

    send_many([Outgoing("orders", "x", key=f"k{n}") for n in range(5)])
    sequence("default")
    made: list[Any] = []

    class Made(Frame):
        def createDataFrame(self, table: Any, schema: Any) -> Made:  # noqa: N802 - Spark's
            made.append(table)
            return self

        def coalesce(self, partitions: int) -> Made:
            assert partitions == 1
            return self

    frame: Any = Made()
    id_ = Partition.objects.get().pk
    messages = Messages(frame, config, keeps=True)
    messages.exactly({id_: [(1, 5)]}, MESSAGES_OF_TRAFFIC, "fail")
    messages.covering({id_: [(2, 4)]}, MESSAGES_OF_LATENCY)
    (table,) = made
    assert sorted(table["key"].to_pylist()) == ["k1", "k2", "k3", "k4"]
    assert not frame.is_kept  # it is in memory as it is
    monkeypatch.setattr(here, "FEW", 3)
    with pytest.raises(AttributeError, match="read"):  # by tasks of Spark
        messages.covering({id_: [(0, 5)], 99: [(0, 3)]}, MESSAGES_OF_LATENCY)


MANY = 4000


def log_of(partition: Partition) -> None:
    begin = timezone.now().replace(second=0, microsecond=0) - 50 * MINUTE
    Message.objects.bulk_create(
        Message(
            partition=partition,
            offset=offset,
            key=f"key-{offset % 7}",
            body=b"",
            body_type="bytes",
            size=1,
            producer="p",
            created_at=begin + offset * MINUTE / 100,
            sequenced_at=begin + offset * MINUTE / 100,
        )
        for offset in range(MANY)
    )
    Partition.objects.filter(pk=partition.pk).update(next_offset=MANY)
    group = ConsumerGroup.objects.create(topic=partition.topic, name="mail")
    Delivery.objects.bulk_create(
        day.delivery(group, partition, (n, n + 99), begin + (n / 100 + 1) * MINUTE, MINUTE / 60)
        for n in range(0, MANY, 100)
    )


def rows_of_messages_read() -> int:
    """Rows of ems_msg that the server has read since it began, by any index."""
    with django.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT_FETCH FROM performance_schema.table_io_waits_summary_by_table"
            " WHERE OBJECT_SCHEMA = DATABASE() AND OBJECT_NAME = 'ems_msg'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.exhaustive
@pytest.mark.mysql
@pytest.mark.one_server
@pytest.mark.parametrize("few", [here.FEW, 0])
def test_three_roll_ups_read_each_message_once(
    few: int, spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs.rollup import roll_up_all

    monkeypatch.setattr(here, "FEW", few)
    log_of(Topic.objects.create(name="orders").partitions.get())
    before = rows_of_messages_read()
    assert roll_up_all(spark, config, print) == []
    assert sum(Traffic.objects.values_list("messages", flat=True)) == MANY
    of_leg = Latency.objects.filter(leg="total").values_list("messages", flat=True)
    assert sum(of_leg) == MANY
    hours = HotKey.objects.values("hour", "total").distinct()
    assert sum(hour["total"] for hour in hours) == MANY
    # Beside them some hundred, by which a plan is made.
    assert MANY <= rows_of_messages_read() - before < 1.5 * MANY

"""Golden figures: what each of the pure functions makes of a few literal rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.any_database

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
Frame = Callable[..., Any]


def at(seconds: float) -> datetime:
    return NINE + timedelta(seconds=seconds)


@pytest.fixture
def messages(spark) -> Frame:
    """Messages from pairs of an offset and the seconds after nine at which it was sequenced."""
    from sparkjobs.source.schemas import MESSAGES

    def make(*places: tuple[int, float], **named: Any) -> Any:
        given = {"partition_id": 1, "topic": "a", "size": 10, "delayed": False, **named}
        rows = [
            {"offset": offset, "sequenced_at": at(seconds), "created_at": at(seconds - 1), **given}
            for offset, seconds in places
        ]
        whole = [tuple(row.get(name) for name in MESSAGES.names) for row in rows]
        return spark.createDataFrame(whole, MESSAGES)

    return make


@pytest.fixture
def deliveries(spark) -> Frame:
    """Deliveries from what is different about each: half past nine, ten offsets, all done."""
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    from sparkjobs.source.schemas import DELIVERIES

    columns = StructType([*DELIVERIES.fields, StructField("waits", ArrayType(LongType()))])

    def make(*changes: dict[str, Any]) -> Any:
        usual = {
            "group_id": 7,
            "partition_id": 1,
            "client_id": "c",
            "thread": "t",
            "attempt": 1,
            "first_offset": 0,
            "last_offset": 9,
            "kind": "new",
            "state": "DONE",
            "error": "",
            "failed": 0,
            "dead": 0,
            "missing": 0,
            "passed": 0,
            "claimed_at": at(1800),
            "finished_at": at(1801.5),
        }
        rows = [{**usual, **change} for change in changes]
        rows = [{"progress": row["last_offset"] + 1, **row} for row in rows]
        whole = [tuple(row.get(name) for name in columns.names) for row in rows]
        return spark.createDataFrame(whole, columns)

    return make


def rows(figures: Any, *order: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = figures.orderBy(*order).toArrow().to_pylist()
    return found


def test_traffic_counts_each_minute_of_each_partition(messages) -> None:
    from sparkjobs.rollup.figures import traffic

    quiet = messages((0, 3.0), partition_id=2)
    keyed = messages((4, 59.999999), (5, 60.0), key="x", size=100)
    twice = messages((6, 60.1), key="x", delayed=True)
    other = messages((7, 119.0), key="y").unionByName(messages((8, 119.9)))
    found = rows(
        traffic(quiet.unionByName(keyed).unionByName(twice).unionByName(other)),
        "partition_id",
        "minute",
    )
    names = ("first_offset", "end_offset", "messages", "bytes", "keys", "delayed")
    assert [
        (row["partition_id"], row["minute"], *(row[name] for name in names)) for row in found
    ] == [
        (1, at(0), 4, 5, 1, 100, 1, 0),
        (1, at(60), 5, 9, 4, 130, 2, 1),
        (2, at(0), 0, 1, 1, 10, 0, 0),
    ]


def test_consumption_counts_what_was_settled_by_client_and_thread(deliveries) -> None:
    from sparkjobs.rollup.figures import consumption

    log = deliveries(
        {},
        {"state": "RETRY", "failed": 3, "dead": 1, "missing": 1, "passed": 2},
        {"kind": "retry", "last_offset": 0, "claimed_at": at(1798)},
        {"kind": "retry", "last_offset": 0, "state": "RETRY", "failed": 1},
        {"kind": "retry", "last_offset": 0, "state": "RELEASED", "progress": 0},
        {"state": "RELEASED", "progress": 4},
        {"state": "RETRY", "progress": 2, "error": "ProcessDied: The process that …"},
        {"state": "RETRY", "progress": 7, "error": "CallGivenUp: An operator …"},
        {"thread": "u", "finished_at": at(1859.5)},
        {"thread": "t", "finished_at": at(1860)},
        {"state": "START", "finished_at": None},
        {"state": "SKIPPED"},
    )
    first, second, later = rows(consumption(log), "minute", "thread")
    assert first == {
        "group_id": 7,
        "minute": at(1800),
        "client_id": "c",
        "thread": "t",
        "deliveries": 8,
        "consumed": 10 + 4 + 1 + 0 + 0 + 4 + 2 + 7,
        "failed": 4,
        "retried": 2,
        "dead": 1,
        "lost": 8 + 3,
        "missing": 1,
        "passed": 2,
        "busy_seconds": 7 * 1.5 + 3.5,
        "longest_seconds": 3.5,
    }
    assert (second["thread"], second["consumed"], second["busy_seconds"]) == ("u", 10, 59.5)
    assert (later["minute"], later["consumed"]) == (at(1860), 10)


def test_attempts_of_an_ordered_group_after_the_first_are_retries(deliveries, messages) -> None:
    """They are claims like the first one, but for their number."""
    from sparkjobs.rollup.figures import consumption, latencies

    log = deliveries(
        {"last_offset": 0, "state": "RETRY", "failed": 1},
        {"last_offset": 0, "attempt": 2, "claimed_at": at(5400), "finished_at": at(5401)},
        {"last_offset": 0, "attempt": 2, "state": "RELEASED", "progress": 0},
    )
    first, again = rows(consumption(log), "minute")
    assert (first["failed"], first["retried"]) == (1, 0)
    assert (again["consumed"], again["retried"]) == (1, 1)
    found = rows(latencies(log, messages((0, 1799.0))), "minute", "leg")
    assert {(row["minute"], row["messages"]) for row in found} == {(at(1800), 1)}
    assert max(row["worst"] for row in found) < 4


def test_what_waits_for_its_key_or_for_longer_is_neither_done_nor_failed(
    spark, deliveries, messages
) -> None:
    from sparkjobs.rollup.figures import consumption, error_classes, latencies
    from sparkjobs.rollup.letters import LETTERS

    log = deliveries(
        {"state": "RETRY", "waits": [3, 4, 9]},
        {
            "state": "RETRY",
            "failed": 3,
            "error": "Busy",
            # A project's own error of this name has failed, as any other.
            "errors": '{"Postpone: later: 1": [1, 5], "Busy": [2]}',
            "waits": [7],
        },
        {"last_offset": 0, "state": "RETRY"},
        {"last_offset": 0, "state": "RETRY", "error": "Postpone"},
    )
    (found,) = rows(consumption(log), "minute")
    assert (found["deliveries"], found["consumed"], found["failed"]) == (4, 7 + 6, 3)
    errors = rows(error_classes(log, spark.createDataFrame([], LETTERS)), "error_class")
    assert [(row["error_class"], row["failed"]) for row in errors] == [("Busy", 1), ("Postpone", 2)]
    whole = messages(*((offset, 1700.0) for offset in range(10)))
    (claimed,) = rows(latencies(log, whole).where("leg = 'claimed'"), "leg")
    assert claimed["messages"] == 7 + 9 + 0 + 0


def more(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("width", "small"),
    [
        *((3, False), (7, True)),
        *(more(width, True) for width in (1, 2, 3, 100)),
        *(more(width, False) for width in (1, 2, 7, 100)),
    ],
)
def test_latencies_are_the_same_in_buckets_of_any_width(
    deliveries, messages, width: int, small: bool
) -> None:
    from sparkjobs.rollup.figures import latencies

    log = messages(*((offset, 1700.0 + offset) for offset in range(30)))
    lengths = [(0, 0), (1, 4), (5, 5), (6, 20), (21, 29)]
    handled = deliveries(*({"first_offset": a, "last_offset": b} for a, b in lengths))
    found = {row["leg"]: row for row in rows(latencies(handled, log, width, small=small), "leg")}
    claimed = found["claimed"]  # 100, 99 … 71 s
    assert (claimed["messages"], claimed["worst"], claimed["p50"]) == (30, 100.0, 85.5)
    assert found["done"]["messages"] == 30


def test_latencies_are_of_each_message_and_each_leg_of_its_way(deliveries, messages) -> None:
    from sparkjobs.rollup.figures import latencies
    from sparkjobs.rollup.histogram import bucket, merged

    # Sent a second before they are sequenced, at nine plus 1700, 1701 … 1704 s.
    log = messages(*((offset, 1700.0 + offset) for offset in range(5)))
    late = messages((5, 1790.0), delayed=True)
    other = messages((0, 1.0), partition_id=2)
    handled = deliveries(
        # The first one was stopped after four, and gave the others back.
        {"state": "RELEASED", "first_offset": 0, "last_offset": 5, "progress": 4},
        {"first_offset": 4, "last_offset": 5},
        {"kind": "retry", "first_offset": 3, "last_offset": 3},
        {"first_offset": 6, "last_offset": 9},  # purged meanwhile
        {"state": "RELEASED", "first_offset": 0, "progress": 0},
    )
    found = rows(latencies(handled, log.unionByName(late).unionByName(other)), "leg")
    by_leg = {row.pop("leg"): row for row in found}
    assert set(by_leg) == {"sequenced", "claimed", "done", "total"}
    same = {"group_id": 7, "minute": at(1800)}
    assert by_leg["sequenced"] == {
        **same,
        "messages": 5,
        "mean": 1.0,
        "p50": 1.0,
        "p95": 1.0,
        "p99": 1.0,
        "worst": 1.0,
        "histogram": f"{bucket(1.0)}:5",
    }
    claimed = by_leg["claimed"]  # 100, 99, 98, 97, 96 and, though delayed, 10 s
    assert (claimed["messages"], claimed["worst"], claimed["p50"]) == (6, 100.0, 97.5)
    assert claimed["mean"] == pytest.approx(500 / 6)
    assert claimed["p95"] == pytest.approx(99.75)
    assert by_leg["done"]["p99"] == 1.5
    total = by_leg["total"]  # 98.5 … 102.5 s
    assert (total["messages"], total["p50"], total["worst"]) == (5, 100.5, 102.5)
    assert total["p95"] == pytest.approx(102.3)
    durations = (10.0, *(100.0 - n for n in range(5)))
    assert claimed["histogram"] == merged(f"{bucket(seconds)}:1" for seconds in durations)


def test_latencies_leave_out_the_messages_that_a_group_passes_over(deliveries, messages) -> None:
    """A delivery says how many these were, and the group which tags it wants."""
    from sparkjobs.rollup.figures import latencies

    log = messages((0, 1700.0), (1, 1701.0), tag="paid").unionByName(
        messages((2, 1702.0), (3, 1703.0), tag="late")
    )
    handled = deliveries(
        {"last_offset": 3, "passed": 2},
        {"last_offset": 1, "group_id": 8, "passed": 2},  # all of them
        {"last_offset": 3, "group_id": 9, "passed": 2},  # its tags are not known
        {"last_offset": 3, "group_id": 10},  # a client over HTTP, which gets all
    )
    tags = {7: ["late", "other"], 8: ["other"], 10: ["late"]}
    found = rows(latencies(handled, log, tags=tags).where("leg = 'claimed'"), "group_id")
    assert [(row["group_id"], row["messages"], row["worst"]) for row in found] == [
        *((7, 2, 98.0), (9, 4, 100.0), (10, 4, 100.0)),
    ]


def test_errors_count_by_the_name_of_their_class(spark, deliveries) -> None:
    from sparkjobs.rollup.figures import error_classes
    from sparkjobs.rollup.letters import LETTERS

    log = deliveries(
        {"failed": 2, "state": "RETRY", "error": "ValueError: no account: 7"},
        {"failed": 1, "state": "RETRY", "error": "ValueError"},
        {"failed": 1, "state": "RETRY", "error": "Busy: x", "finished_at": at(1860)},
        {"state": "RETRY", "progress": 8, "error": "ProcessDied: The process …"},
        {"state": "RETRY", "progress": 9, "error": "CallGivenUp: An operator …"},
        {},
        # Each message has its own error; of the last one not all were noted.
        {
            "failed": 4,
            "state": "RETRY",
            "error": "Busy: b",
            "errors": '{"Busy: a": [1], "Busy: b": [4], "Gone: \\"x\\": 1": [2, 3]}',
            "finished_at": at(1920),
        },
        {
            "failed": 3,
            "state": "RETRY",
            "progress": 7,
            "error": "ProcessDied: The process …",
            "errors": '{"Busy: a": [1], "Gone": [2]}',
            "finished_at": at(1980),
        },
    )
    letters = spark.createDataFrame(
        [
            (7, "ValueError", at(1800), 1),
            (7, "shop.errors.Busy", at(1860), 1),
            (8, "a.b.Busy", at(0), 2),
            (8, "Busy", at(0), 1),
        ],
        LETTERS,
    )
    found = rows(error_classes(log, letters), "group_id", "minute", "error_class")
    assert [tuple(row.values()) for row in found] == [
        (7, at(1800), "CallGivenUp", 1, 0),
        (7, at(1800), "ProcessDied", 2, 0),
        (7, at(1800), "ValueError", 3, 1),
        (7, at(1860), "Busy", 1, 1),
        (7, at(1920), "Busy", 2, 0),
        (7, at(1920), "Gone", 2, 0),
        (7, at(1980), "Busy", 1, 0),
        (7, at(1980), "Gone", 1, 0),
        (7, at(1980), "ProcessDied", 4, 0),
        (8, at(0), "Busy", 0, 3),
    ]


def test_hot_keys_are_ranked_within_their_topic_and_hour(messages) -> None:
    from sparkjobs.rollup.figures import hot_keys

    frame = messages((0, 1), (1, 2), (2, 3), key="b", size=1)
    for part in (
        messages((3, 4), (4, 5), key="c"),
        messages((5, 6), (6, 7), key="a"),
        messages((7, 8), key="d"),
        messages((8, 9), (9, 9)),  # without a key
        messages((0, 3600), key="d"),
        messages((0, 1), key="a", topic="z"),
    ):
        frame = frame.unionByName(part)
    found = rows(hot_keys(frame, most=3), "topic", "hour", "place")
    assert [tuple(row.values()) for row in found] == [
        ("a", at(0), 1, "b", 3, 3, 0.3, 10),
        ("a", at(0), 2, "a", 2, 20, 0.2, 10),
        ("a", at(0), 3, "c", 2, 20, 0.2, 10),
        ("a", at(3600), 1, "d", 1, 10, 1.0, 1),
        ("z", at(0), 1, "a", 1, 10, 1.0, 1),
    ]

"""Hours and days are the sums of their minutes, and stay when the minutes are deleted."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.live import histogram as read
from monitoring.live.levels import TimeSpan
from monitoring.live.pipeline import Ranked, ranking
from monitoring.models import (
    ConsumptionLevel,
    Grain,
    LatencyLevel,
    Traffic,
    TrafficLevel,
)
from monitoring.old_figures import old_figures
from sparkjobs.database import transaction
from sparkjobs.rollup import histogram, tables
from sparkjobs.rollup.levels import add_up
from sparkjobs.rollup.tables import upsert
from streams import runtime_settings
from streams.models import SystemConfig, Topic
from tests.monitoring.test_sinks import consumed, latency, traffic

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


def counted(numbers: list[int]) -> str:
    return histogram.merged(f"{number}:1" for number in numbers)


def interpolated(ordered: list[float], share: float) -> float:
    """As Spark's percentile(), and figures of minutes, are computed."""
    rank = share * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - math.floor(rank))


@settings(max_examples=300, deadline=None)
@given(
    minutes=st.lists(
        st.lists(st.floats(0, 200_000, allow_nan=False), min_size=1, max_size=60),
        min_size=1,
        max_size=8,
    ),
    share=st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]),
)
def test_a_percentile_of_an_hour_is_off_by_five_per_cent_or_a_millisecond_at_most(
    minutes: list[list[float]], share: float
) -> None:
    texts = [counted([histogram.bucket(seconds) for seconds in minute]) for minute in minutes]
    exact = interpolated(sorted(seconds for minute in minutes for seconds in minute), share)
    bound = max(read.ERROR * exact, read.LEAST) + 1e-9
    # Merged at once, or hours first and then the day.
    for given_texts in (texts, [histogram.merged(texts)]):
        found = read.percentile(given_texts, share)
        assert found is not None
        assert abs(found - exact) <= bound


def test_both_sides_have_the_same_buckets() -> None:
    assert (read.GAMMA, read.LEAST) == (histogram.GAMMA, histogram.LEAST)
    assert read.percentile([], 0.5) is None


def written(connection: Any, table: tables.Table, *rows: dict[str, Any]) -> None:
    with transaction(connection):
        upsert(connection, table, rows)
        add_up(connection, table, rows)


def at(hours: float) -> datetime:
    return MIDNIGHT + hours * HOUR


@pytest.mark.django_db(transaction=True)
def test_hours_and_days_are_the_sums_of_their_minutes(connection: Any) -> None:
    written(
        connection,
        tables.TRAFFIC,
        traffic(0, minute=at(1), messages=10),
        traffic(10, minute=at(1.5), messages=20),
        traffic(30, minute=at(2), messages=40),
        traffic(70, minute=at(24), messages=80),
        traffic(0, minute=at(1), partition_id=2, messages=160),
    )
    found = TrafficLevel.objects.order_by("grain", "partition", "start")
    assert list(found.values_list("grain", "partition", "start", "messages")) == [
        (Grain.HOUR, 1, at(1), 30),
        (Grain.HOUR, 1, at(2), 40),
        (Grain.HOUR, 1, at(24), 80),
        (Grain.HOUR, 2, at(1), 160),
        (Grain.DAY, 1, at(0), 70),
        (Grain.DAY, 1, at(24), 80),
        (Grain.DAY, 2, at(0), 160),
    ]
    # A minute that is counted again changes its hour and its day, and a deleted one does not.
    written(connection, tables.TRAFFIC, traffic(10, minute=at(1.5), messages=21))
    assert TrafficLevel.objects.get(grain=Grain.DAY, partition=1, start=at(0)).messages == 71
    Traffic.objects.filter(minute=at(1)).delete()
    written(connection, tables.TRAFFIC, traffic(10, minute=at(1.5), messages=21))
    assert TrafficLevel.objects.get(grain=Grain.DAY, partition=1, start=at(0)).messages == 71


@pytest.mark.django_db(transaction=True)
def test_hours_and_days_say_what_each_thread_has_done_and_its_longest_call(
    connection: Any,
) -> None:
    for hour, longest in ((1, 3.0), (1.5, 7.0), (2, 5.0)):
        rows = [
            consumed(minute=at(hour), client_id="c", thread=name, longest_seconds=longest + more)
            for name, more in (("t", 0), ("T", 1))
        ]
        written(connection, tables.CONSUMPTION, *rows)
    found = ConsumptionLevel.objects.order_by("-grain", "start", "-thread").values_list(
        "grain", "client_id", "thread", "consumed", "busy_seconds", "longest_seconds"
    )
    assert list(found) == [
        (Grain.DAY, "c", "t", 15, 15.0, 7.0),
        (Grain.DAY, "c", "T", 15, 15.0, 8.0),
        (Grain.HOUR, "c", "t", 10, 10.0, 7.0),
        (Grain.HOUR, "c", "T", 10, 10.0, 8.0),
        (Grain.HOUR, "c", "t", 5, 5.0, 5.0),
        (Grain.HOUR, "c", "T", 5, 5.0, 6.0),
    ]


@pytest.mark.django_db(transaction=True)
def test_the_latency_of_an_hour_has_mean_longest_and_histogram_of_its_minutes(
    connection: Any,
) -> None:
    written(
        connection,
        tables.LATENCY,
        latency(minute=at(1), messages=1, mean=1.0, worst=1.0, histogram="69:1"),
        latency(minute=at(1.5), messages=3, mean=3.0, worst=9.0, histogram="69:1 80:2"),
    )
    hour = LatencyLevel.objects.get(grain=Grain.HOUR)
    assert (hour.messages, hour.mean, hour.worst) == (4, 2.5, 9.0)
    assert hour.histogram == "69:2 80:2"
    assert LatencyLevel.objects.get(grain=Grain.DAY).histogram == "69:2 80:2"


@pytest.mark.django_db(transaction=True)
def test_minutes_are_deleted_before_their_hours(connection: Any) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    ages = [timedelta(days=days) for days in (1, 30, 32, 500)]
    written(connection, tables.TRAFFIC, *(traffic(n, minute=now - ages[n]) for n in range(4)))
    SystemConfig.objects.create(name="figureRetentionDays", value=400)
    runtime_settings.forget()
    assert sum(old_figures("default")) == 2 + 2  # minutes; an hour and a day of 500 days ago
    kept = Traffic.objects.order_by("first_offset").values_list("first_offset", flat=True)
    assert list(kept) == [0, 1]
    assert TrafficLevel.objects.filter(grain=Grain.HOUR).count() == 3
    SystemConfig.objects.create(name="figureMinuteRetentionDays", value=20)
    runtime_settings.forget()
    assert sum(old_figures("default")) == 1
    assert TrafficLevel.objects.filter(grain=Grain.HOUR).count() == 3


@pytest.mark.django_db(transaction=True)
def test_the_ranking_of_a_month_is_that_of_the_minutes_and_reads_few_rows(
    connection: Any, django_assert_num_queries: Any
) -> None:
    Topic.objects.create(name="orders")
    partition = Topic.objects.get().partitions.get().pk
    topics = {partition: Topic.objects.get().pk}
    since = at(5) + timedelta(minutes=30)
    minutes = [since - HOUR + number * timedelta(minutes=90) for number in range(200)]
    rows = [
        traffic(n, minute=minute, partition_id=partition, messages=n, bytes=2 * n)
        for n, minute in enumerate(minutes)
    ]
    written(connection, tables.TRAFFIC, *rows)
    expected = sum(row["messages"] for row in rows if row["minute"] >= since)
    with django_assert_num_queries(1):
        found = ranking("default", [TimeSpan(since)], topics)
    assert found == [{Topic.objects.get().pk: Ranked(expected, 2 * expected)}]
    # Of whole hours and days, the minutes are not read.
    Traffic.objects.filter(minute__gte=at(6)).delete()
    assert ranking("default", [TimeSpan(since)], topics) == found

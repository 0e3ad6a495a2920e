"""Series of samples: rates are differences, what was not sampled is a gap, and a reset is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monitoring.charts.chart import DURATION
from monitoring.charts.scale import top
from monitoring.charts.svg import path, runs
from monitoring.charts.text import count, number, size
from monitoring.figures.speed import speed
from monitoring.models import GroupSample, PartitionSample
from monitoring.pages.asked import HOURS
from monitoring.sample.grain import grain
from monitoring.sample.periods import Periods, Reading, rates, total
from monitoring.sample.series import group_series, log_series, starts
from streams.log.condition import Clearing, clearing

NOON = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def sampled(ages: list[int], **more: Any) -> None:
    """As if the samples of so many minutes before 12:00 had been taken, one message a second."""
    before = None
    for age in sorted(ages, reverse=True):
        minute = NOON.replace(second=0) - age * MINUTE
        common = {"minute": minute, "taken_at": minute, "grain": grain(minute, before)}
        done = 100_000 - 60 * age
        PartitionSample.objects.create(
            **common, partition_id=1, first_offset=0, next_offset=done, inbox=0
        )
        reading = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, "done": done, "behind": age}
        GroupSample.objects.create(**common, group_id=1, **{**reading, **more})
        before = minute


def readings(*values: float | None) -> list[Reading | None]:
    return [None if value is None else (NOON + n * MINUTE, value) for n, value in enumerate(values)]


def test_a_rate_is_a_difference_and_across_a_gap_there_is_none():
    assert rates(readings(0, 60, None, 180, 300)) == [None, 1, None, None, 2]


def test_a_count_that_has_fallen_has_no_rate():
    assert rates(readings(100, 40, 100)) == [None, None, 1]


def test_a_sum_is_unknown_only_where_nothing_is_known():
    assert total([[1, None, None], [2, 3, None]]) == [3, 3, None]
    assert total([]) == []


@pytest.mark.parametrize("name", HOURS)
def test_a_chart_has_at_most_a_few_hundred_periods(name):
    periods = Periods.until(NOON, HOURS[name] * HOUR)
    # Nothing coarser is sampled than a quarter of a day: 90 days have more.
    assert (15 if name == "15m" else 60) <= len(periods.starts) <= (361 if name == "90d" else 300)
    assert periods.place(NOON) == len(periods.starts) - 1
    assert periods.place(periods.first) == 0
    assert periods.place(periods.first - MINUTE) is None
    assert periods.place(NOON + DAY) is None


@pytest.mark.django_db
def test_a_minute_that_nobody_sampled_is_a_gap():
    sampled([5, 4, 2, 1, 0])
    (series,) = log_series("default", Periods.until(NOON, HOUR)).values()
    assert series.published[-6:] == [None, 1, None, None, 1, 1]
    assert set(series.published[:-6]) == {None}


@pytest.mark.django_db
def test_days_are_read_from_the_first_sample_of_each_period_and_rates_of_now_from_minutes():
    sampled(list(range(200)))
    periods = Periods.until(NOON, 7 * DAY)
    (series,) = group_series("default", periods).values()
    assert periods.minutes == 60
    assert [value for value in series.consumed if value is not None] == [1, 1, 1, 1]
    assert len(series.recent) == 12
    assert speed(series.recent_since(None), (NOON, 100_060)) == pytest.approx(360 / 330)


@pytest.mark.django_db
def test_a_reset_forward_is_no_throughput():
    sampled([3, 2])
    sampled([1, 0], reset_at=NOON - MINUTE, done=5_000_000)
    (series,) = group_series("default", Periods.until(NOON, HOUR)).values()
    assert series.consumed[-4:] == [None, 1, None, 0]
    assert len(series.recent_since(NOON - MINUTE)) == 2


@pytest.mark.django_db
@pytest.mark.parametrize(("length", "first"), [(HOUR, 60), (DAY, 120)])
def test_where_the_log_was_when_the_range_began(length, first):
    sampled([120, 90, 60, 30, 0])
    assert starts("default", Periods.until(NOON, length)) == {1: 100_000 - 60 * first}


def test_a_rate_of_now_is_over_half_a_minute_or_more():
    read = [(NOON - 70 * MINUTE, 0.0), (NOON - 2 * MINUTE, 0.0), (NOON - MINUTE / 6, 100.0)]
    assert speed(read, (NOON, 120)) == 1
    assert speed(read[-1:], (NOON, 120)) is None
    assert speed(read[:1], (NOON, 120)) is None  # an hour ago is not now
    assert speed(read, None) is None


@pytest.mark.parametrize(
    ("behind", "into", "out", "expected"),
    [
        (600, 10, 20, Clearing("falls", MINUTE, -10)),
        (600, 20, 10, Clearing("grows", None, 10)),
        (600, 100, 101, Clearing("steady", None, -1)),
        (0, 10, 20, Clearing()),
        (None, 10, 20, Clearing()),
        (600, None, 20, Clearing()),
        (600, 0, 0, Clearing("steady", None, 0)),
    ],
)
def test_the_time_to_clear_is_from_the_two_rates(behind, into, out, expected):
    assert clearing(behind, into, out) == expected


def test_a_line_is_broken_where_nothing_is_known():
    assert list(runs([1, None, 2, 3, None])) == [[(0, 1)], [(2, 2), (3, 3)]]
    assert path([1, None, 2, 3], 100, 10, 3).count("M") == 2


@pytest.mark.parametrize(
    ("highest", "unit", "expected"),
    [
        (0, "", 1),
        (7, "", 10),
        (11, "/s", 20),
        (310, "", 400),
        (0.3, "", 0.4),
        (70, DURATION, 120),
        (5000, DURATION, 7200),
        (3e6, DURATION, 4e6),
    ],
)
def test_an_axis_ends_at_a_round_number(highest, unit, expected):
    assert top(highest, unit) == pytest.approx(expected)


def test_figures_have_separators_and_what_is_unknown_is_a_dash():
    assert [number(value) for value in (None, 0, 1234567, 12.34, 0.123)] == [
        *("–", "0", "1,234,567", "12.3", "0.12")
    ]
    assert [count(value, 10_000) for value in (None, 9_999, 10_000)] == ["–", "9,999", "10,000+"]
    assert size(1536).replace("\N{NO-BREAK SPACE}", " ") == "1.5 KiB"

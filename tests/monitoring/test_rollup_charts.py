"""The charts that Spark fills: how long messages take, and failures by class, period by period."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.charts import svg
from monitoring.charts.chart import Chart, Line
from monitoring.figures import errors
from monitoring.figures.rollups import backlogs, failures, latencies
from monitoring.live.histogram import ERROR
from monitoring.models import (
    BacklogLevel,
    ErrorClass,
    ErrorLevel,
    Grain,
    GroupSample,
    Latency,
    LatencyLevel,
)
from monitoring.sample.grain import floor
from monitoring.sample.periods import Periods
from sparkjobs.rollup.histogram import bucket, merged
from streams.database.clock import database_now
from streams.models import DeadMessage, UtcNow
from tests.monitoring.test_overview import (  # noqa: F401 - a fixture
    BUDGET,
    FRAME,
    MORE,
    browser,
    figures,
    letters,
    make,
    page,
)

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def minute(ago: int) -> Any:
    return floor(database_now("default"), 1) - ago * MINUTE


def took(group: Any, ago: int, p50: float, p95: float, p99: float) -> None:
    values = {"mean": p50, "p50": p50, "p95": p95, "p99": p99, "worst": p99}
    Latency.objects.create(group=group, minute=minute(ago), leg="total", messages=9, **values)


def failed(group: Any, ago: int, name: str, count: int) -> None:
    ErrorClass.objects.create(
        group=group, minute=minute(ago), error_class=name, failed=count, dead=0
    )


def lines(found: Any, name: str) -> dict[str, list[float | None]]:
    return {one["label"]: one["values"] for one in found["charts"][name]["lines"]}


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@pytest.mark.parametrize(("asked", "expected"), [("1h", [1.0, 4.0]), ("24h", [4.0])])
def test_latencies_are_those_of_the_worst_minute_of_each_period(browser, asked, expected) -> None:  # noqa: F811
    group = make("orders", "mail")
    five = floor(database_now("default"), 5) - timedelta(minutes=10)
    for number, seconds in enumerate((1.0, 4.0)):
        values = {"mean": 1, "p50": seconds, "p95": 2 * seconds, "p99": 9, "worst": 9}
        at = five + number * MINUTE
        Latency.objects.create(group=group, minute=at, leg="total", messages=1, **values)
        Latency.objects.create(group=group, minute=at, leg="done", messages=1, **values)
    found = lines(figures(browser, "group", group.pk, query=f"&range={asked}"), "latency")
    assert {name: known(values) for name, values in found.items()} == {
        "p50": expected,
        "p95": [2 * value for value in expected],
        "p99": [9.0] * len(expected),
    }
    of_topic = figures(browser, "topic", group.topic_id, query=f"&range={asked}")
    assert known(lines(of_topic, "latency")["mail"]) == [2 * value for value in expected]


def hours_of(group: Any, grain: int, start: Any, *seconds: float) -> None:
    """The sum of an hour or a day, whose minutes are deleted."""
    found = merged(f"{bucket(value)}:1" for value in seconds)
    values = {"messages": len(seconds), "mean": 1, "worst": max(seconds)}
    LatencyLevel.objects.create(
        group=group, grain=grain, start=start, leg="total", histogram=found, **values
    )
    LatencyLevel.objects.create(
        group=group, grain=grain, start=start, leg="done", histogram="0:9", **values
    )


@pytest.mark.every_database
@pytest.mark.parametrize(("asked", "places"), [("7d", 1), ("30d", 4), ("90d", 4)])
def test_latencies_of_long_ranges_are_there_when_their_minutes_are_deleted(
    browser,  # noqa: F811
    asked: str,
    places: int,
) -> None:
    group = make("orders", "mail")
    day = floor(database_now("default"), Grain.DAY) - timedelta(days=3)
    hours_of(group, Grain.HOUR, day + timedelta(hours=5), *range(1, 101))
    hours_of(group, Grain.DAY, day, *range(1, 101))
    took(group, 2, 7, 8, 9)
    found = figures(browser, "group", group.pk, query=f"&range={asked}")
    for name, exact in (("p50", 50.5), ("p95", 95.05), ("p99", 99.01)):
        values = known(lines(found, "latency")[name])
        assert values == [pytest.approx(exact, rel=ERROR)] * places
    assert "within 5 %" in found["charts"]["latency"]["note"]
    # Those of now are exact, of the last minutes.
    assert found["percentiles"] == {"p50": 7, "p95": 8, "p99": 9}
    of_topic = figures(browser, "topic", group.topic_id, query=f"&range={asked}")
    assert known(lines(of_topic, "latency")["mail"]) == [pytest.approx(95, rel=ERROR)] * places


def behind(group: Any, grain: int, start: Any, most: int) -> None:
    values = {"behind": most, "least": most // 10, "age_seconds": 60.0 * most}
    waiting = {"waiting": most + 1, "dead": most + 2, "samples": grain}
    BacklogLevel.objects.create(group=group, grain=grain, start=start, **values, **waiting)


@pytest.mark.every_database
@pytest.mark.parametrize(("asked", "places"), [("7d", 1), ("30d", 4), ("90d", 4)])
def test_the_backlog_of_long_ranges_is_the_highest_of_each_hour_or_day(
    browser,  # noqa: F811
    asked: str,
    places: int,
) -> None:
    """A sample of each hour would miss what came and went between two of them."""
    group = make("orders", "mail")
    day = floor(database_now("default"), Grain.DAY) - timedelta(days=3)
    behind(group, Grain.HOUR, day, 500)
    behind(group, Grain.DAY, day, 500)
    # One that was added up, too, and one of a time when Spark did not run.
    for at, count in ((day, 3), (day - timedelta(days=1), 7)):
        reading = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, "behind": count}
        GroupSample.objects.create(group=group, minute=at, taken_at=at, grain=360, **reading)
    found = figures(browser, "group", group.pk, query=f"&range={asked}")
    assert {name: known(values) for name, values in lines(found, "behind").items()} == {
        "behind": [7] + [500] * places,
        "at least": [50] * places,
    }
    assert known(lines(found, "age")["age"]) == [30_000] * places
    assert known(lines(found, "failed")["dead letters"]) == [0] + [502] * places
    for name in ("behind", "age", "failed"):
        assert "by Spark" in found["charts"][name]["note"]


@pytest.mark.parametrize("asked", ["1h", "7d"])
def test_without_spark_the_backlog_is_that_of_the_samples(browser, asked: str) -> None:  # noqa: F811
    group = make("orders", "mail")
    at = floor(database_now("default"), 60)
    reading = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, "behind": 7}
    GroupSample.objects.create(group=group, minute=at, taken_at=at, grain=360, **reading)
    if asked == "1h":
        behind(group, Grain.HOUR, at, 500)
    found = figures(browser, "group", group.pk, query=f"&range={asked}")
    assert {name: known(values) for name, values in lines(found, "behind").items()} == {
        "behind": [7]
    }
    assert not found["charts"]["behind"]["note"]


@pytest.mark.every_database
def test_failures_of_long_ranges_are_those_of_the_hours_and_of_this_hour(browser) -> None:  # noqa: F811
    group = make("orders", "mail")
    hour = floor(database_now("default"), 60)
    level = {"group": group, "grain": Grain.HOUR, "error_class": "shop.Declined", "dead": 0}
    for ago, count in ((0, 7), (1, 60), (50, 120)):
        ErrorLevel.objects.create(start=hour - ago * 60 * MINUTE, failed=count, **level)
    # Of the hour that goes on, as its minutes say it.
    ErrorClass.objects.create(
        group=group, minute=hour, error_class="shop.Declined", failed=7, dead=0
    )
    found = figures(browser, "group", group.pk, query="&range=7d")
    assert [one[:2] for one in found["errors"]] == [["shop.Declined", 187]]
    values = known(lines(found, "errors")["Declined"])
    assert (values[0], values[-2]) == (2, 1)
    assert sum(values) * 60 == pytest.approx(187)


@pytest.mark.mysql
@pytest.mark.every_database
def test_charts_of_long_ranges_read_few_rows() -> None:
    group = make("orders", "mail")
    now = database_now("default")
    first = floor(now, 60) - timedelta(days=6)
    values = {"leg": "total", "messages": 1, "mean": 1, "p50": 1, "p95": 1, "p99": 1, "worst": 1}
    Latency.objects.bulk_create(
        Latency(group=group, minute=first + n * 2 * MINUTE, **values) for n in range(3000)
    )
    ErrorClass.objects.bulk_create(
        ErrorClass(group=group, minute=first + n * 2 * MINUTE, error_class="E", failed=1, dead=0)
        for n in range(3000)
    )
    for n in range(100):
        hours_of(group, Grain.HOUR, first + n * 60 * MINUTE, 1.0)
        behind(group, Grain.HOUR, first + n * 60 * MINUTE, 1)
    for range_ in (timedelta(days=7), timedelta(days=90)):
        periods = Periods.until(now, range_)
        before = rows_read()
        latencies("default", periods, [group.pk])
        list(failures("default", periods, group.pk))
        backlogs("default", periods, {group.pk: None})
        assert rows_read() - before < 800


def rows_read() -> int:
    """Rows that the server has read for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(
            int(count)
            for name, count in cursor.fetchall()
            if name in ("Handler_read_next", "Handler_read_prev", "Handler_read_rnd_next")
        )


def test_failures_are_counted_by_class_and_a_minute_without_a_row_is_none(browser) -> None:  # noqa: F811
    group = make("orders", "mail")
    took(group, 20, 1, 2, 3)
    failed(group, 10, "shop.Declined", 5)
    failed(group, 10, "shop.Late", 2)
    failed(group, 8, "shop.Declined", 1)
    found = figures(browser, "group", group.pk)
    assert [one[:2] for one in found["errors"]] == [["shop.Declined", 6], ["shop.Late", 2]]
    of_classes = lines(found, "errors")
    # From the first figure of Spark to the last one; before and after them nothing is known.
    assert known(of_classes["Declined"]) == [0] * 10 + [5, 0, 1]
    assert known(of_classes["Late"]) == [0] * 10 + [2, 0, 0]
    assert of_classes["Declined"][0] is of_classes["Declined"][-1] is None
    assert found["charts"]["errors"]["is_stacked"] is True


def test_classes_of_one_short_name_keep_their_modules_and_the_rest_is_one_line(browser) -> None:  # noqa: F811
    group = make("orders", "mail")
    for number, name in enumerate(("a.E", "b.E", "c", "d", "e", "f", "g")):
        failed(group, 5, name, 10 - number)
    found = lines(figures(browser, "group", group.pk), "errors")
    assert [*found] == ["a.E", "b.E", "c", "d", "e", "other classes"]
    assert known(found["other classes"]) == [5 + 4]


def test_without_spark_the_newest_letters_that_wait_are_drawn(browser, monkeypatch) -> None:  # noqa: F811
    group = make("orders", "mail")
    letters(group, 3, 10 * MINUTE)
    found = figures(browser, "group", group.pk)
    assert found["errors_by_spark"] is False
    assert sum(known(lines(found, "errors")["Declined"])) == 3
    assert None not in lines(found, "errors")["Declined"]
    monkeypatch.setattr(errors, "NEWEST", 2)
    oldest = DeadMessage.objects.order_by("pk")[1]  # of those that are read
    DeadMessage.objects.filter(pk=oldest.pk).update(died_at=UtcNow(-20 * MINUTE))
    declined = lines(figures(browser, "group", group.pk), "errors")["Declined"]
    # What died before the oldest one that was read is not known.
    assert declined[30] is None
    assert sum(known(declined)) == 1


@pytest.mark.parametrize("asked", ["1h", "30d"])
def test_with_figures_of_spark_the_pages_keep_to_their_budget(browser, asked) -> None:  # noqa: F811
    group = make("orders", "mail")
    took(group, 5, 1, 2, 3)
    failed(group, 5, "shop.Declined", 1)
    letters(group, 2)
    for name, pk in (("group", group.pk), ("topic", group.topic_id)):
        most = BUDGET + MORE.get(name, 0) + (asked != "1h")
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(page(name, pk) + f"?range={asked}").status_code == 200
        assert sum(not any(part in one["sql"] for part in FRAME) for one in captured) <= most


def test_a_stacked_chart_draws_each_line_on_those_before_it() -> None:
    chart = Chart("errors", "", "", [], [Line("a", [1, None, 2]), Line("b", [3, None, None])])
    stacked = Chart(**{**vars(chart), "is_stacked": True})
    assert stacked.drawn == [[1, None, 2], [4, None, 2]]
    assert (chart.highest, stacked.highest) == (3, 4)
    assert "ems-layer-1" in svg.lines(stacked)
    assert "ems-layer" not in svg.lines(chart)

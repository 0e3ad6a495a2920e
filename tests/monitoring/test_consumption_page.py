"""The page “who handled what” says what the rows of Spark say, by client and thread."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from monitoring.live.limits import LISTED_AT_MOST
from monitoring.models import Consumption, ConsumptionLevel, Grain, Run
from monitoring.sample.grain import floor
from streams.database.clock import database_now
from tests.monitoring.test_overview import (  # noqa: F401 - a fixture
    BUDGET,
    FRAME,
    browser,
    figures,
    log_in_with,
    make,
    page,
)

pytestmark = pytest.mark.django_db

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CLIENT = "10.0.0.1@7@mail"  # the one of make(), which is alive
NAMES = ("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing", "passed")


def ago(length: timedelta, grain: int = 1) -> Any:
    return floor(database_now("default"), grain) - length


def row(client: str = CLIENT, thread: str = "t", longest: float = 1.0, **counts: int) -> Any:
    values: dict[str, Any] = {**dict.fromkeys(NAMES, 0), **counts}
    values |= {"busy_seconds": values["consumed"] / 10, "longest_seconds": longest}
    return {"client_id": client, "thread": thread, **values}


def minute(group: Any, at: Any, *args: Any, **counts: Any) -> None:
    Consumption.objects.create(group=group, minute=at, **row(*args, **counts))


def level(group: Any, grain: int, start: Any, *args: Any, **counts: Any) -> None:
    ConsumptionLevel.objects.create(group=group, grain=grain, start=start, **row(*args, **counts))


def rolled_up() -> None:
    now = database_now("default")
    Run.objects.create(job="consumption", state="done", until=now, finished_at=now)


def handled(browser: Any, group: Any, query: str = "") -> Any:  # noqa: F811
    return figures(browser, "consumption", group.pk, query=query)["handling"]


def counts(one: Any) -> list[Any]:
    return [one[name] for name in ("messages", "failures", "lost", "claims", "busy", "longest")]


def test_figures_of_a_client_are_the_sums_of_its_threads_and_its_longest_call(browser) -> None:  # noqa: F811
    group, other = make("orders", "mail"), make("stock", "mail-2")
    minute(group, ago(5 * MINUTE), consumed=10, failed=1, deliveries=2, longest=2.0)
    minute(group, ago(4 * MINUTE), consumed=20, lost=3, deliveries=3, longest=7.5)
    minute(group, ago(4 * MINUTE), CLIENT, "T", consumed=40, deliveries=4)
    minute(group, ago(4 * MINUTE), "gone@1@x", consumed=5, deliveries=1)
    minute(group, ago(2 * HOUR), consumed=1000)
    minute(other, ago(4 * MINUTE), consumed=500)
    found = handled(browser, group)
    assert counts(found["whole"]) == [75, 4, 3, 10, 7.5, 7.5]
    assert found["whole"]["each"] == pytest.approx(7.5 / 79, abs=1e-6)
    mine, gone = found["clients"]
    assert (mine["host"], mine["process"], mine["is_live"]) == ("10.0.0.1", "7", True)
    assert (gone["host"], gone["is_live"], gone["threads_in_all"]) == ("gone", False, 1)
    assert counts(mine["handled"]) == [70, 4, 3, 9, 7.0, 7.5]
    assert [(name, counts(one)[0]) for name, one in mine["threads"]] == [("T", 40), ("t", 30)]
    # Of the minutes that Spark has counted: one without a row of a client is 0.
    chart = figures(browser, "consumption", group.pk)["chart"]
    known = [[one for one in line["values"] if one is not None] for line in chart["lines"]]
    assert known == [[10, 60], [0, 5]]


@pytest.mark.every_database
@pytest.mark.parametrize(("asked", "expected"), [("6h", 6), ("24h", 24), ("7d", 168), ("90d", 168)])
def test_long_ranges_are_read_from_hours_and_days(browser, asked: str, expected: int) -> None:  # noqa: F811
    """The minutes may be deleted; each hour is counted once, in its day or by itself."""
    group = make("orders", "mail")
    now = database_now("default")
    for back in range(200):
        start = floor(now, 60) - back * HOUR
        level(group, Grain.HOUR, start, consumed=1 if back <= 168 else 0)
    for back in range(9):
        start = floor(now, Grain.DAY) - timedelta(days=back)
        of_day = ConsumptionLevel.objects.filter(
            grain=Grain.HOUR, start__gte=start, start__lt=start + timedelta(days=1)
        )
        level(group, Grain.DAY, start, consumed=sum(one.consumed for one in of_day))
    minute(group, ago(MINUTE), consumed=1)
    found = handled(browser, group, f"&range={asked}")
    # With the hour that goes on.
    assert found["whole"]["messages"] == expected + 1


@pytest.mark.parametrize(
    ("by", "first"), [("", "many"), ("failures", "fails"), ("time", "many"), ("longest", "slow")]
)
def test_the_order_is_that_of_the_url(browser, by: str, first: str) -> None:  # noqa: F811
    group = make("orders", "mail")
    minute(group, ago(MINUTE), "many", consumed=90)
    minute(group, ago(MINUTE), "slow", consumed=8, longest=100.0)
    minute(group, ago(MINUTE), "fails", consumed=7, failed=5)
    assert handled(browser, group, f"&by={by}")["clients"][0]["client_id"] == first
    html = browser.get(page("consumption", group.pk) + "?by=longest&range=6h").text
    assert '<a href="?range=6h&amp;by=failures">failures</a>' in html
    assert '<a href="?by=longest" >' not in html  # a range of one hour keeps the order, too
    assert '<a href="?range=24h&amp;by=longest">24h</a>' in html


def test_of_thousands_of_clients_the_first_are_listed_and_all_are_counted(browser) -> None:  # noqa: F811
    rolled_up()
    group = make("orders", "mail")
    Consumption.objects.bulk_create(
        Consumption(group=group, minute=ago(MINUTE), **row(f"host@{n}@x", f"t{t}", consumed=n))
        for n in range(LISTED_AT_MOST + 10)
        for t in range(3)
    )
    found = handled(browser, group)
    assert len(found["clients"]) == LISTED_AT_MOST
    assert found["clients_in_all"] == LISTED_AT_MOST + 10
    assert found["whole"]["messages"] == 3 * sum(range(LISTED_AT_MOST + 10))
    assert len(found["lines"]) == 6  # the first five, and all others
    shown = [[values[-2] for _name, values in found["lines"]]]
    assert sum(shown[0]) == found["whole"]["messages"]
    assert (
        "The first 50 clients of this order, of 60"
        in browser.get(page("consumption", group.pk)).text
    )


def test_the_threads_of_one_client_are_a_click_away_from_the_group(browser) -> None:  # noqa: F811
    rolled_up()
    group = make("orders", "mail")
    minute(group, ago(MINUTE), consumed=3)
    minute(group, ago(MINUTE), "other@1@x", consumed=4)
    url = f"{page('consumption', group.pk)}?client=10.0.0.1%407%40mail"
    of_group = browser.get(page("group", group.pk)).text
    assert f'href="{escape(url)}"' in of_group
    assert f'<a href="{page("consumption", group.pk)}">Who handled what</a>' in of_group
    found = figures(browser, "consumption", group.pk, query="&client=10.0.0.1%407%40mail")
    assert [one["client_id"] for one in found["handling"]["clients"]] == [CLIENT]
    assert found["handling"]["whole"]["messages"] == 3
    assert f'id="threads-{CLIENT}" open' in browser.get(url).text
    log_in_with(browser, "view_overview", "view_consumergroup")
    assert "Who handled what" not in browser.get(page("group", group.pk)).text


def test_threads_that_are_left_out_are_said(browser, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr("monitoring.figures.consumption.THREADS", 2)
    rolled_up()
    group = make("orders", "mail")
    for number in range(5):
        minute(group, ago(MINUTE), CLIENT, f"t{number}", consumed=number)
    (one,) = handled(browser, group)["clients"]
    assert ([name for name, _handled in one["threads"]], one["threads_in_all"]) == (["t4", "t3"], 5)
    assert "2 of 5 threads" in browser.get(page("consumption", group.pk)).text


def test_without_figures_the_page_says_why(browser) -> None:  # noqa: F811
    group = make("orders", "mail")
    html = browser.get(page("consumption", group.pk)).text
    assert "has not counted yet" in html
    assert "ems_spark rollup" in html
    rolled_up()
    html = browser.get(page("consumption", group.pk)).text
    assert "Nothing was handled in this range. Spark has counted until" in html


@pytest.mark.every_database
@pytest.mark.parametrize(("state", "count"), [("failed", 20), ("done", 1)])
def test_what_was_counted_is_shown_whatever_runs_without_an_end_came_later(
    browser,  # noqa: F811
    state: str,
    count: int,
) -> None:
    """A run that has failed has no end; nor has one that has computed the past once more."""
    group = make("orders", "mail")
    minute(group, ago(5 * MINUTE), consumed=10)
    rolled_up()
    ends = Run.objects.get().until
    now = database_now("default")
    later = {"job": "consumption", "state": state, "since": ago(HOUR), "finished_at": now}
    Run.objects.bulk_create(Run(**later) for _ in range(count))
    html = browser.get(page("consumption", group.pk)).text
    assert "has not counted yet" not in html
    assert CLIENT in html
    found = figures(browser, "consumption", group.pk)
    assert datetime.fromisoformat(found["rolled_up_until"]) == ends


@pytest.mark.parametrize("asked", ["1h", "90d"])
def test_the_page_keeps_to_its_budget_however_many_clients(browser, asked: str) -> None:  # noqa: F811
    rolled_up()
    group = make("orders", "mail")

    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            url = page("consumption", group.pk) + f"?range={asked}"
            assert browser.get(url).status_code == 200
        return sum(not any(part in one["sql"] for part in FRAME) for one in captured)

    def crowd(first: int, end: int) -> None:
        for number in range(first, end):
            args = f"host@{number}@x", f"t{number}"
            minute(group, ago(MINUTE), *args, consumed=1)
            level(group, Grain.DAY, ago(timedelta(0), Grain.DAY), *args, consumed=1)

    crowd(0, 3)
    few = statements()
    crowd(3, 60)
    assert statements() == few <= BUDGET

"""The page of the backlogs: its figures are those of the rows, whoever has added them up."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.models import BacklogLevel, Grain, GroupSample
from monitoring.sample.grain import floor
from streams.database.clock import database_now
from streams.models import ConsumerGroup
from tests.monitoring.test_flags import fired, mark
from tests.monitoring.test_overview import (  # noqa: F401 - a fixture
    BUDGET,
    FRAME,
    browser,
    crowd,
    figures,
    log_in_with,
    make,
    message,
    page,
)

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
RANGES = {"7d": (Grain.HOUR, 169), "30d": (Grain.DAY, 31), "90d": (Grain.DAY, 91)}


def level(group: Any, grain: Grain, ago: int, behind: int | None, age: float | None) -> datetime:
    start = floor(database_now("default"), grain) - ago * timedelta(minutes=grain)
    figures = {"samples": 9, "least": 0, "waiting": 0, "dead": 0}
    BacklogLevel.objects.create(
        group=group, grain=grain, start=start, behind=behind, age_seconds=age, **figures
    )
    return start


def sampled(group: Any, at: datetime, grain: int, behind: int, age: float | None) -> None:
    reading = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1}
    GroupSample.objects.create(
        group=group, minute=at, taken_at=at, grain=grain, behind=behind, age_seconds=age, **reading
    )


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@pytest.mark.every_database
@pytest.mark.parametrize("asked", RANGES)
def test_figures_are_those_of_the_rows(browser, asked: str) -> None:  # noqa: F811
    """Computed once more, in plain Python."""
    grain, periods = RANGES[asked]
    random = Random(asked)  # noqa: S311
    groups = [make(f"t{n}", f"g{n}") for n in range(4)]
    for group in groups:
        for ago in random.sample(range(periods), periods // 2):
            behind, age = random.randrange(10**6), random.choice([None, 1.0, 599.0, 601.0, 1e6])
            level(group, grain, ago, behind, age)
        level(group, grain, periods + 1, 10**9, 10**9)  # before the range
    found = figures(browser, "backlog", query=f"&range={asked}")
    first = floor(database_now("default"), grain) - (periods - 1) * timedelta(minutes=grain)
    rows = BacklogLevel.objects.filter(start__gte=first)
    late: dict[datetime, int] = {}
    for row in rows:
        late[row.start] = late.get(row.start, 0) + ((row.age_seconds or 0) > 600)
    assert known(found["charts"]["late"]["lines"][0]["values"]) == [late[at] for at in sorted(late)]
    assert len(found["charts"]["late"]["times"]) == periods
    for one in found["groups"]:
        mine = list(rows.filter(group=one["pk"]).order_by("start"))
        assert known(one["behind_series"]) == [row.behind for row in mine]
        assert one["most"] == max(row.behind or 0 for row in mine)
        assert one["late"] == sum((row.age_seconds or 0) > 600 for row in mine)
        assert one["known"] == len(mine)
        assert one["oldest"] == max(row.age_seconds or 0 for row in mine)
    order = [(-one["late"], -one["oldest"], -one["most"]) for one in found["groups"]]
    assert order == sorted(order)
    assert "by Spark" in found["charts"]["behind"]["note"]


@pytest.mark.parametrize(("asked", "values"), [("7d", [7, 9]), ("30d", [9])])
def test_without_spark_the_samples_are_shown_and_what_spark_adds(browser, asked, values) -> None:  # noqa: F811
    group = make("orders", "mail")
    day = floor(database_now("default"), Grain.DAY) - 2 * DAY
    sampled(group, day, 360, 7, 5.0)
    sampled(group, day + 6 * HOUR, 360, 9, 700.0)
    sampled(group, day + 7 * MINUTE, 1, 500, 5.0)  # not the first one of its hour
    found = figures(browser, "backlog", query=f"&range={asked}")
    (one,) = found["groups"]
    assert known(one["behind_series"]) == values
    assert one["late"] == 1
    assert "sampled" in found["charts"]["behind"]["note"]
    assert "ems_spark rollup" in browser.get(page("backlog")).text


def test_where_spark_is_late_the_samples_go_on(browser) -> None:  # noqa: F811
    group = make("orders", "mail")
    level(group, Grain.HOUR, 5, 500, 1.0)
    now = floor(database_now("default"), 60)
    for ago, behind in ((5, 3), (4, 4), (7, 99)):
        sampled(group, now - ago * HOUR, 60, behind, 1.0)
    found = figures(browser, "backlog")
    # The hour that both have is that of Spark; what was before it is not read again.
    assert known(found["groups"][0]["behind_series"]) == [500, 4]
    assert "by Spark" in found["charts"]["behind"]["note"]


def test_the_figures_of_now_are_live_and_a_group_that_is_late_is_marked(browser) -> None:  # noqa: F811
    group = make("orders", "mail", behind=5)
    message(group, 95, HOUR)
    found = figures(browser, "backlog")
    assert (found["behind"], found["late_now"]) == (5, 1)
    assert found["groups"][0]["age"] == pytest.approx(3600, abs=60)
    assert 'class="ems-right ems-hot"' in browser.get(page("backlog")).text


@pytest.mark.parametrize(("asked", "expected"), [("1h", "7d"), ("24h", "7d"), ("90d", "90d")])
def test_a_range_of_hours_counts_as_a_week_and_leads_on(browser, asked, expected) -> None:  # noqa: F811
    group = make("orders", "mail")
    assert figures(browser, "backlog", query=f"&range={asked}")["shown"] == expected
    html = browser.get(f"{page('backlog')}?range={asked}").text
    assert f'href="{page("group", group.pk)}?range={expected}"' in html
    assert '?range=1h"' not in html.split('class="ems-choices"')[1].split("</nav>")[0]


def test_a_group_without_history_and_an_empty_installation_say_so(browser) -> None:  # noqa: F811
    assert "ems_consume" in browser.get(page("backlog")).text
    make("orders", "mail")
    html = browser.get(page("backlog")).text
    assert "no samples" in html
    assert "No samples in this range" in html
    level(ConsumerGroup.objects.get(), Grain.HOUR, 3, 0, None)
    html = browser.get(page("backlog")).text
    assert "No group was behind." in html
    assert "No samples in this range" not in html


def test_what_happened_is_that_of_all_groups_by_their_names(browser) -> None:  # noqa: F811
    mail, bill = make("orders", "mail"), make("bills", "bill")
    mark("deployment", 3 * DAY, mail, bill, count=12)
    mark("pause", 2 * DAY, bill, text="paused", who="mei")
    fired(DAY, "orders", "mail")
    told = [flag["told"][0]["text"] for flag in figures(browser, "backlog")["happened"]["flags"]]
    assert told == [
        "12 processes: bill, mail",
        "bill on bills: paused",
        "mail on orders: Messages that a group is behind",
    ]


def test_the_overview_leads_to_it_for_who_may_see_groups(browser) -> None:  # noqa: F811
    link = f'<a href="{page("backlog")}">Behind</a>'
    assert link in browser.get(page("changelist")).text
    log_in_with(browser, "view_overview")
    assert link not in browser.get(page("changelist")).text


@pytest.mark.parametrize("asked", ["7d", "90d"])
def test_the_page_takes_as_many_statements_however_many_groups(browser, asked) -> None:  # noqa: F811
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(f"{page('backlog')}?range={asked}").status_code == 200
        return sum(not any(part in one["sql"] for part in FRAME) for one in captured)

    crowd(2)
    few = statements()
    crowd(9)
    for group in ConsumerGroup.objects.all():
        level(group, Grain.DAY, 3, 5, 5.0)
        mark("pause", DAY, group)
    assert statements() == few <= BUDGET

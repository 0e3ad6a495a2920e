"""The charts in a browser: hover shows values, zoom selects, and a refresh keeps the zoom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monitoring.models import ErrorClass, GroupSample, Latency, PartitionSample
from monitoring.sample.grain import floor
from streams.database.clock import database_now
from streams.models import ConsumerGroup
from tests.browser.chromium import Tab
from tests.browser.shop import page
from tests.monitoring.test_overview import make

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


def past(group: ConsumerGroup) -> None:
    """An hour of samples and roll-ups: n minutes ago it was n hundred messages behind."""
    now = floor(database_now("default"), 1)
    partition = group.topic.partitions.get()
    for n in range(1, 60):
        at = now - n * MINUTE
        common = {"minute": at, "taken_at": at, "grain": 1}
        logged = {"first_offset": 0, "next_offset": 60_000 - 600 * n, "inbox": 0}
        PartitionSample.objects.create(**common, **logged, partition=partition)
        counts = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1}
        GroupSample.objects.create(
            **common, **counts, group=group, behind=100 * n, done=60_000 - 700 * n
        )
        took = {"mean": 1, "p50": 1, "p95": 2, "p99": n, "worst": n, "messages": 5}
        Latency.objects.create(group=group, minute=at, leg="total", **took)
        for name, failed in (("shop.CardRefused", n), ("shop.BankIsAway", 10)):
            ErrorClass.objects.create(
                group=group, minute=at, error_class=name, failed=failed, dead=0
            )


def hover(tab: Tab, chart: str, share: float) -> None:
    """Move the mouse over a chart, to this share of its width."""

    def move(page: Any) -> None:
        box = page.locator(f"#ems-chart-{chart} .u-over").bounding_box()
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)

    tab.do(move)


def drag(tab: Tab, chart: str, first: float, last: float) -> None:
    def pull(page: Any) -> None:
        box = page.locator(f"#ems-chart-{chart} .u-over").bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + first * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + last * box["width"], y, steps=5)
        page.mouse.up()

    tab.do(pull)


def legend(tab: Tab, chart: str) -> list[str]:
    """The values below a chart: the time, then each line."""
    return tab.texts(f"#ems-chart-{chart} .u-legend .u-value")


def shown_from(tab: Tab, chart: str) -> str:
    """The time at the left edge of a chart."""
    hover(tab, chart, 0.001)
    return legend(tab, chart)[0]


def test_hover_shows_the_values_and_a_zoom_stays_through_a_refresh(tab: Tab) -> None:
    group = make("orders", "mail", behind=0, end=60_000)
    past(group)
    tab.take_clock()
    tab.go(page("group", group.pk) + "?refresh=15")
    tab.wait("#ems-chart-behind.ems-drawn")
    tab.do(lambda page: page.locator("#ems-chart-behind").scroll_into_view_if_needed())

    hover(tab, "behind", 0.5)
    at, behind = legend(tab, "behind")
    by_time = {f"{one.minute:%Y-%m-%d %H:%M} UTC": one.behind for one in GroupSample.objects.all()}
    assert int(behind.replace(",", "")) == by_time[at]
    # The other charts show the same moment. Parts of a whole show their own values.
    of_classes = dict(
        ErrorClass.objects.values_list("error_class", "failed").filter(
            minute=GroupSample.objects.get(behind=by_time[at]).minute
        )
    )
    shown = legend(tab, "errors")
    assert shown == [at, str(of_classes["shop.CardRefused"]), str(of_classes["shop.BankIsAway"])]

    whole = shown_from(tab, "behind")
    drag(tab, "behind", 0.5, 0.75)
    zoomed = shown_from(tab, "behind")
    assert zoomed > whole
    assert shown_from(tab, "rates") == zoomed  # all charts of the page have one time axis

    tab.ask("() => { document.getElementById('ems-live').dataset.old = '1' }")
    tab.pass_time(16)
    tab.wait("#ems-live:not([data-old]) #ems-chart-behind.ems-drawn")
    assert shown_from(tab, "behind") == zoomed
    tab.do(lambda page: page.dblclick("#ems-chart-behind .u-over"))
    assert shown_from(tab, "behind") < zoomed

    width = "() => document.querySelector('#ems-chart-behind .u-over').clientWidth"
    before = tab.ask(width)
    tab.click(".theme-toggle")
    assert tab.ask(width) == before > 300

"""The flags of the charts in a browser: at their times, by mouse, by keyboard, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from monitoring.figures.flags import FLAGS, TICKS
from streams.models import ConsumerGroup
from tests.browser.chromium import PHONE, Tab
from tests.browser.shop import page
from tests.browser.test_charts import drag, past
from tests.monitoring.test_flags import fired, mark
from tests.monitoring.test_overview import make

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
# Of the drawing that is shown: where each flag is, as a share of the width; None if it is hidden.
PLACES = """
(chart) => {
    const over = document.querySelector(`#ems-chart-${chart} .u-over`).getBoundingClientRect();
    const lines = document.querySelectorAll(`#ems-chart-${chart} .u-over .ems-flag line`);
    return [...lines].map((one) => {
        const box = one.getBoundingClientRect();
        return one.closest("[hidden]") ? null : (box.x + box.width / 2 - over.x) / over.width;
    });
}
"""
NUMBERS = """
() => [...document.querySelectorAll("#ems-chart-behind .ems-flag text")].map((t) => t.textContent)
"""
OVERLAPS = """
() => {
    const heads = [...document.querySelectorAll("#ems-chart-behind .u-over .ems-flag path")];
    const boxes = heads.map((one) => one.getBoundingClientRect());
    return boxes.some((box, n) => n && box.x < boxes[n - 1].x + boxes[n - 1].width - 8);
}
"""


@pytest.fixture
def group() -> ConsumerGroup:
    made: ConsumerGroup = make("orders", "mail", behind=0, end=60_000)
    past(made)
    mark("reset", 45 * MINUTE, made, text="orders/0: 9 → 0", who="mei")
    mark("deployment", 30 * MINUTE, made, count=12)
    fired(15 * MINUTE, "orders", "mail")
    return made


def test_flags_stand_at_their_times_also_in_a_zoom(tab: Tab, group: Any) -> None:
    tab.go(page("group", group.pk) + "?refresh=off")
    tab.wait("#ems-chart-behind.ems-drawn")
    assert tab.ask(PLACES, "behind") == [pytest.approx(n / 4, abs=0.03) for n in (1, 2, 3)]
    assert tab.ask(PLACES, "rates") == pytest.approx(tab.ask(PLACES, "behind"), abs=0.01)
    tab.do(lambda page: page.locator("#ems-chart-behind").scroll_into_view_if_needed())
    drag(tab, "behind", 0.4, 0.6)
    first, second, third = tab.ask(PLACES, "behind")
    assert first is third is None
    assert second == pytest.approx(0.5, abs=0.1)


@pytest.mark.exhaustive
def test_a_flag_leads_to_its_line_and_the_line_shows_its_flags(tab: Tab, group: Any) -> None:
    tab.go(page("group", group.pk) + "?refresh=off")
    tab.wait("#ems-chart-behind.ems-drawn")
    tab.click("#ems-chart-behind .u-over .ems-flag-act path")
    assert tab.path.endswith("#ems-flag-1")
    assert "orders/0: 9 → 0" in tab.text("#ems-flag-1")
    # By keyboard: the links of the list, one after the other.
    tab.do(lambda page: page.locator("#ems-flag-2 a").focus())
    on = "() => document.querySelectorAll('.ems-flag-deployment.ems-flag-on').length"
    assert tab.ask(on) >= 5  # on every chart, and no other flag
    assert tab.ask("() => document.querySelectorAll('.ems-flag-alarm.ems-flag-on').length") == 0


@pytest.mark.exhaustive
def test_without_a_script_the_flags_of_the_server_are_there(
    open_tab: Callable[..., Tab], group: Any
) -> None:
    tab = open_tab(java_script_enabled=False)
    tab.go(page("group", group.pk))
    tab.wait("#ems-chart-behind .ems-canvas .ems-flags")
    assert tab.ask(NUMBERS) == ["1", "2", "3"]


@pytest.mark.exhaustive
def test_a_phone_shows_as_many_flags_as_there_are_side_by_side(
    open_tab: Callable[..., Tab],
) -> None:
    group = make("orders", "mail", behind=0, end=60_000)
    past(group)
    for n in range(300):
        mark("pause", n * MINUTE / 5, group, text="paused")
        mark("deployment", n * MINUTE / 5, group)
    tab = open_tab(viewport=PHONE)
    tab.go(page("group", group.pk) + "?refresh=off")
    tab.wait("#ems-chart-behind.ems-drawn")
    flags = len(tab.texts("#ems-chart-behind .u-over .ems-flag text"))
    assert FLAGS - 1 <= flags <= FLAGS  # one less where two marks fall into one place
    assert 90 < len(tab.ask(PLACES, "behind")) - flags <= TICKS
    assert not tab.ask(OVERLAPS)
    assert tab.ask("() => document.body.scrollWidth <= window.innerWidth")

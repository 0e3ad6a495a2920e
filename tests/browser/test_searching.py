"""A search without an index goes on by itself up to a bound, and says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from monitoring.pages import search as page
from streams import Outgoing, send_many
from streams.log import search as log
from streams.log.sequencer import sequence
from streams.models import Message
from tests.browser.chromium import Tab

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

SEARCH = reverse("admin:ems_monitoring_overview_search")
MESSAGES = reverse("admin:ems_message_changelist")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search read three messages; a log has thirty, the key "a" at 28, 14 and 0."""
    monkeypatch.setattr(log, "SEARCHED", 3)
    monkeypatch.setattr(log, "ENTRIES", 3)
    send_many([Outgoing("orders", n, key="a" if n % 14 == 0 else "b") for n in range(30)])
    sequence("default")


def places(tab: Tab) -> list[str]:
    return tab.texts("#ems-found tbody th")


def test_it_goes_on_until_all_is_searched_and_keeps_what_it_has_found(
    small: None, tab: Tab
) -> None:
    tab.go(f"{SEARCH}?q=a")
    tab.wait("#ems-further", "All messages have been searched.")
    assert places(tab) == ["orders/0@28", "orders/0@14", "orders/0@0"]


@pytest.mark.exhaustive
def test_it_ends_at_its_bound_and_goes_on_when_asked_to(
    small: None, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "STEPS", 2)
    tab.go(f"{SEARCH}?q=a")
    tab.wait("#ems-further p", "21 older messages are not searched yet.")
    tab.wait("#ems-further code", "python manage.py ems_topics index orders")
    tab.wait("[data-older]")
    tab.click("[data-older]")
    tab.wait("#ems-further p", "15 older messages are not searched yet.")
    assert places(tab) == ["orders/0@28"]


@pytest.mark.exhaustive
def test_it_shows_how_far_it_is_and_is_stopped(small: None, tab: Tab) -> None:
    asked: list[Any] = []

    def hold(route: Any) -> None:
        asked.append(route)
        if len(asked) < 3:  # the page, and the first step; then no answer
            route.continue_()

    tab.do(lambda page: page.route("**/search/**", hold))
    tab.go(f"{SEARCH}?q=a")
    tab.wait("#ems-further p", "24 older messages are not searched yet.")
    tab.wait("[data-stop]")
    done = "() => { const bar = document.querySelector('progress'); return [bar.value, bar.max]; }"
    assert tab.ask(done) == [3, 27]
    tab.click("[data-stop]")
    tab.wait("[data-older]")
    assert tab.ask("() => document.querySelector('[data-stop]').hidden")
    assert len(asked) == 3


@pytest.mark.exhaustive
def test_the_list_of_messages_opens_the_first_page_on_which_something_is(
    small: None, tab: Tab
) -> None:
    Message.objects.filter(offset__gte=14).update(key="b")
    tab.go(f"{MESSAGES}?key=a")
    tab.wait("#result_list tbody tr")
    assert len(tab.texts("#result_list tbody tr")) == 1
    assert "upto=" in tab.path


def test_without_javascript_there_is_a_button(small: None, open_tab: Callable[..., Tab]) -> None:
    tab = open_tab(java_script_enabled=False)
    tab.go(f"{SEARCH}?q=a")
    tab.wait("#ems-further p", "27 older messages are not searched yet.")
    tab.click("a.button[data-older]")
    tab.wait("#ems-further p", "24 older messages are not searched yet.")

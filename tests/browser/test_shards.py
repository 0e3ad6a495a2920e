"""Twelve databases with long names: one of them is chosen, on a phone and in the dark."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connections
from django.urls import reverse

from streams.models import ConsumerGroup, Topic
from tests.browser.__main__ import LOOKS
from tests.browser.chromium import Tab
from tests.browser.shop import page

LONG = [f"clicks-of-{name}-in-the-second-data-centre" for name in "abcdefghij"]
AWAY = LONG[0]
SWITCH = ".ems-databases > details > summary"
TOPICS = reverse("admin:ems_topic_changelist")

pytestmark = [
    pytest.mark.django_db(databases=["default", "other", *LONG], transaction=True),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module", autouse=True)
def aliases() -> Iterator[None]:
    """Give the database ``other`` ten more aliases, before Django asks which ones a test may use.

    The first of them is away.
    """
    for alias in LONG:
        configured.DATABASES[alias] = copy.deepcopy(configured.DATABASES["other"])
        configured.DATABASES[alias]["TEST"]["MIRROR"] = "other"  # emptied once is enough
    configured.DATABASES[AWAY]["NAME"] = "/nowhere/none"
    yield
    for alias in LONG:
        connections[alias].close()
        del connections[alias]
        del configured.DATABASES[alias]


@pytest.fixture
def shards(ems_settings: Any) -> None:
    ems_settings(SHARDS={"clicks": "other", **{alias: alias for alias in LONG}})
    for alias, name in (("default", "orders"), ("other", "clicks")):
        topic = Topic.objects.using(alias).create(name=name)
        ConsumerGroup.objects.using(alias).create(topic=topic, name=f"{name}-mail")


def test_a_database_is_chosen_and_each_page_stays_on_it_in_its_tab(
    shards: None, open_tab: Callable[..., Tab]
) -> None:
    first, second = open_tab(), open_tab()
    first.go(TOPICS)
    assert first.text(SWITCH) == "Database: default"
    second.go(TOPICS)
    second.click(SWITCH)
    second.click(".ems-databases li a:has-text('other')")
    second.wait(SWITCH, "other")
    second.wait("#result_list th", "clicks")
    assert second.path == f"{TOPICS}?database=other"
    # The first tab goes on where it is, whatever was chosen in the second.
    first.click("#result_list tbody th a")
    first.wait("h2", "orders")
    assert first.text(SWITCH) == "Database: default"
    first.click("text=Retire …")
    first.wait("button.button", "Retire")
    assert "database=default" in first.path
    second.go(page("changelist") + "?refresh=5&database=other")
    assert second.text(SWITCH) == "Database: other"
    second.click(".ems-tabs a:text-is('Topics')")
    second.wait(".ems-topics th", "clicks")


def test_twelve_with_long_names_fit_on_a_phone(shards: None, open_tab: Callable[..., Tab]) -> None:
    tab = open_tab(**LOOKS["phone"])
    for path in (reverse("admin:app_list", args=["ems"]), page("changelist"), TOPICS):
        tab.go(path)
        tab.click(SWITCH)
        assert len(tab.texts(".ems-databases li")) == 12
        width, shown = tab.ask("() => [document.body.scrollWidth, window.innerWidth]")
        assert width <= shown, path
    assert "away" in tab.text(f".ems-databases li:has-text('{AWAY}')")

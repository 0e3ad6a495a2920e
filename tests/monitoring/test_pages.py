"""The pages of the monitoring: who may see them, what URLs ask, and what a browser accepts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from monitoring.models import Alarm, HotKey, Run
from monitoring.pages.asked import Asked
from monitoring.pages.base import VIEW, FiguresPage
from monitoring.pages.registry import PAGES
from tests.admin.world import World, make_world

pytestmark = pytest.mark.django_db

OVERVIEW = "admin:ems_monitoring_overview_changelist"
ALL_TABLES = ("ems", "ems_monitoring")
# As the script asks that refreshes a page.
WITHOUT_BANNER = {"X-Requested-With": "XMLHttpRequest"}


@pytest.fixture
def world(db: None, clean_registry: None) -> World:
    return make_world()


@pytest.fixture
def user_with(db: None) -> Any:
    """``user_with("app.codename", …)`` is a browser of a member of staff with these."""

    def log_in(*names: str, staff: bool = True) -> Client:
        user = User.objects.create(username=f"u{User.objects.count()}", is_staff=staff)
        for name in names:
            app, codename = name.split(".")
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label=app, codename=codename)
            )
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def viewer(user_with: Any) -> Client:
    names = Permission.objects.filter(
        content_type__app_label__in=ALL_TABLES, codename__startswith="view_"
    ).values_list("content_type__app_label", "codename")
    return user_with(*(f"{app}.{name}" for app, name in names))  # type: ignore[no-any-return]


def url_of(page: type[FiguresPage], world: World) -> str:
    """The URL of a page; its arguments are rows of the world. A new kind of page: add it here."""
    rows = {"group": world.billing.pk, "topic": world.billing.topic_id}
    return page.url(*(rows[name] for name in re.findall(r"<int:(\w+)>", page.route)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("query", ["", "?format=json"])
def test_a_page_is_for_who_has_all_of_its_permissions(page, query, world, user_with, viewer):
    url = url_of(page, world) + query
    needed = (VIEW, *page.permissions)
    assert Client().get(url).status_code == 302
    assert user_with(*needed, staff=False).get(url).status_code == 302
    assert user_with().get(url).status_code == 403
    for missing in needed:
        some = [name for name in needed if name != missing]
        assert user_with(*some).get(url).status_code == 403, missing
    assert user_with(*needed).get(url).status_code == 200
    assert viewer.get(url).status_code == 200


@pytest.mark.parametrize(
    ("name", "permission", "text"),
    [
        ("changelist", "ems_monitoring.view_alarm", "mail on elsewhere"),
        ("changelist", "ems_monitoring.view_run", "NoSuchHost"),
        ("topic", "ems_monitoring.view_hotkey", "ann@example.com"),
    ],
)
@pytest.mark.parametrize("query", ["", "?format=json"])
def test_a_figure_of_another_table_is_for_who_may_view_that_table(
    name, permission, text, query, world, user_with
):
    Alarm.objects.create(
        rule="my-rule",
        metric="lag",
        subject="mail on elsewhere",
        severity="warning",
        state="firing",
        value=2,
        threshold=1,
    )
    Run.objects.create(job="traffic", state="failed", error="NoSuchHost: mysql")
    HotKey.objects.create(
        topic_id=world.billing.topic_id,
        hour=timezone.now(),
        place=1,
        key="ann@example.com",
        messages=3,
        bytes=3,
        share=0.5,
    )
    (page,) = (one for one in PAGES if one.name == name)
    url, needed = url_of(page, world) + query, (VIEW, *page.permissions)
    every = {"ems_monitoring.view_alarm", "ems_monitoring.view_run", "ems_monitoring.view_hotkey"}
    others = (*needed, *(every - {permission}))
    assert text not in user_with(*others).get(url).text
    assert text in user_with(*needed, permission).get(url).text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_page_only_reads(method, world, viewer, user_with):
    for page in PAGES:
        if set(page.http_method_names) <= {"get", "head", "options"}:
            url = url_of(page, world)
            assert viewer.generic(method, url).status_code == 405
            assert user_with().generic(method, url).status_code == 403


def test_a_page_that_is_not_there_is_not_found(world, viewer):
    for page in PAGES:
        if arguments := re.findall(r"<int:\w+>", page.route):
            assert viewer.get(page.url(*[999_999] * len(arguments))).status_code == 404


class Elements(HTMLParser):
    """Collects what a strict Content-Security-Policy would refuse."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        inline = tag == "script" and "src" not in given and given.get("type") != "application/json"
        events = [name for name in given if name.startswith("on")]
        sources = [given.get("src") or "", given.get("href") or ""]
        foreign = tag in ("script", "link", "img") and any("//" in one for one in sources)
        if inline or tag == "style" or "style" in given or events or foreign:
            self.refused.append(f"<{tag} {given}>")


def test_a_strict_content_security_policy_refuses_nothing(world, viewer):
    """Of what these pages add: Django's own parts of the admin keep to it, too."""
    for page in PAGES:
        refused = Elements(viewer.get(url_of(page, world)).text).refused
        assert not refused, f"{page.name}: {refused}"


def test_json_has_the_figures_of_the_page(world, viewer):
    for page in PAGES:
        response = viewer.get(url_of(page, world) + "?format=json&range=6h")
        found = json.loads(response.content)
        assert found["range"] == "6h"
        assert found["as_of"].endswith("Z")


def test_what_a_url_asks_is_kept_from_page_to_page(viewer):
    html = viewer.get(reverse(OVERVIEW) + "?range=24h&refresh=60").text
    tabs = re.findall(r'<a href="([^"]+)" aria-current="page">', html)
    assert tabs == [reverse(OVERVIEW) + "?range=24h&amp;refresh=60"]
    assert 'data-refresh="60"' in html


def test_a_choice_that_does_not_exist_counts_as_the_default():
    from django.http import QueryDict

    assert Asked.of(QueryDict("range=<b>&refresh=0&zone=")) == Asked()


def test_tabs_are_those_that_the_user_may_see(user_with):
    html = user_with(VIEW).get(reverse(OVERVIEW)).text
    tabs = re.findall(r'<nav class="ems-tabs".*?</nav>', html, re.S)[0]
    allowed = [page for page in PAGES if page.tab == page.name and not page.permissions]
    assert tabs.count("<li>") == len(allowed)


def test_the_index_of_the_admin_leads_to_the_overview(user_with):
    client = user_with(VIEW)
    assert f'href="{reverse(OVERVIEW)}"' in client.get(reverse("admin:index")).text
    for app in ("ems", "ems_monitoring"):
        client = user_with(VIEW, "ems.view_topic")
        link = f'class="ems-overview" href="{reverse(OVERVIEW)}"'
        assert link in client.get(reverse("admin:app_list", args=[app])).text
    other = user_with("ems.view_topic").get(reverse("admin:app_list", args=["ems"])).text
    assert "ems-overview" not in other

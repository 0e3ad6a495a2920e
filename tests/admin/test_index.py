"""The index of the admin begins with what is wrong, in every project, and waits for nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.http import HttpResponse
from django.test import Client
from django.urls import path, reverse

from monitoring.apps import MonitoringConfig
from monitoring.figures.site import Site
from monitoring.models import Run, Traffic
from streams.admin import index
from streams.admin.alarm import Said
from streams.admin.base import StreamsAdmin
from streams.admin.pages.topic import TopicAdmin
from streams.admin.parts import filled
from streams.database import each
from streams.models import ConsumerGroup, DeadMessage, Step, Topic, UtcNow
from tests.admin.conftest import As
from tests.admin.world import World, run_steps
from tests.monitoring.alarming import alarm

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

INDEX = "/admin/"
Page = Callable[[], str]


@pytest.fixture(autouse=True)
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "_filled", set())
    monkeypatch.setattr(filled, "_asked_at", -filled.FRESH)
    monkeypatch.setattr(index, "KEPT", 0.0)


@pytest.fixture
def root(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def box(html: str) -> str:
    (found,) = re.findall(r'<section class="ems-box".*?</section>', html, re.S)
    return unescape(found)


def lines(html: str) -> list[str]:
    """Return what the box says: the state and the sentence."""
    (said,) = re.findall(r'<ul class="ems-box-lines">.*?</ul>', box(html), re.S)
    return [" ".join(re.sub(r"<[^>]+>", " ", one).split()) for one in said.split("<li>")[1:]]


# -- what it says --


def test_it_comes_first_with_what_is_wrong_the_worst_first(world: World, root: Client) -> None:
    ConsumerGroup.objects.filter(pk=world.billing.pk).update(paused=True)
    alarm(subject="gone on orders", group="gone", severity="warning")
    alarm(subject="lost on orders", group="lost", since=UtcNow(-timedelta(hours=2)))
    html = root.get(INDEX).text
    assert html.index('class="ems-box"') < html.index('id="content-main"')
    said = lines(html)
    assert said[0].startswith("Critical lost on orders: ")
    assert "for 2 h" in said[0]
    (warning,) = (n for n, one in enumerate(said) if one.startswith("Warning"))
    assert 0 < warning < len(said) - 1
    letters = [one for one in said if one.startswith("dead letters")]
    assert re.search(r"\d+ dead letters? waits? for a decision\.", letters[0])


def test_each_line_and_each_page_has_a_link_that_leads_there(world: World, root: Client) -> None:
    alarm()
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    found = box(root.get(INDEX).text)
    links = re.findall(r'href="([^"]+)"', found)
    assert found.count("<li>") == len(links) > 8
    titles = re.findall(r">([^<]+)</a>", found.partition("ems-box-pages")[2])
    assert titles[:4] == ["Overview", "Alarms", "Topics", "Groups"]
    assert titles[-1] == "Dead letters"
    for link in links:
        assert root.get(link).status_code == 200, link


def test_it_says_so_if_nothing_is_wrong(world: World, root: Client) -> None:
    DeadMessage.objects.all().delete()
    ConsumerGroup.objects.pause()
    found = box(root.get(INDEX).text)
    assert "Nothing is wrong." in found or "paused" in found
    ConsumerGroup.objects.all().delete()
    assert "Nothing is wrong." in box(root.get(INDEX).text)


def test_of_many_alarms_and_groups_the_worst_are_shown(world: World, root: Client) -> None:
    for number in range(8):
        alarm(subject=f"g{number} on orders", group=f"g{number}")
    said = lines(root.get(INDEX).text)
    assert sum("g" in one and "Critical" in one for one in said) == 5
    assert "more More alarms fire." in said


def test_who_may_see_nothing_of_ems_gets_nothing_and_nothing_is_asked(
    world: World, as_role: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def trouble(using: str, may: Any) -> list[Said]:
        asked.append(using)
        return []

    monkeypatch.setattr(index, "trouble", trouble)
    html = as_role("staff").get(INDEX).text
    assert "ems-box" not in html
    assert asked == []
    assert "ems-box" in as_role("staff", "ems.view_step").get(INDEX).text
    assert asked == ["default"]


def test_who_may_see_one_table_is_told_of_no_other(world: World, as_role: As) -> None:
    alarm()
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    html = as_role("staff", "ems.view_topic").get(INDEX).text
    (only,) = lines(html)
    assert only.startswith("alarm No consumer or beat has run since")
    assert re.findall(r'href="([^"]+)"', box(html)) == [reverse("admin:ems_topic_changelist")]
    letters = as_role("staff", "ems.view_deadmessage").get(INDEX).text
    assert any(one.startswith("dead letters") for one in lines(letters))


def test_a_group_and_its_alarm_are_one_line_if_the_group_was_said_in_time(
    world: World, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for metric in ("lag", "lag_age"):
        alarm(rule=metric, metric=metric, subject="billing on orders", group="billing")
    (line,) = [one for one in lines(root.get(INDEX).text) if "billing on orders" in one]
    assert line.startswith("alarm billing on orders: ")

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(Site, "read", away)
    said = [one for one in lines(root.get(INDEX).text) if "billing on orders" in one]
    assert len(said) == 2
    assert all(one.startswith("Critical billing on orders: ") for one in said)


def test_who_takes_care_of_an_alarm_is_said_beside_the_line_of_its_group(
    world: World, root: Client
) -> None:
    taken = {"state": "acknowledged", "acknowledged_at": UtcNow(), "acknowledged_by": "ann"}
    alarm(subject="billing on orders", group="billing", **taken)
    said = [one for one in lines(root.get(INDEX).text) if "billing on orders" in one]
    assert said[0].startswith("dead letters billing on orders: ")
    assert said[1].endswith("ann takes care of it")


def test_many_dead_letters_are_counted_to_a_limit(
    world: World, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeadMessage.objects.filter(offset=2).update(group=world.mail)
    monkeypatch.setattr(index, "COUNTED", 2)
    assert any("2+ dead letters wait" in one for one in lines(root.get(INDEX).text))


# -- it waits for no database --


def test_what_a_database_has_said_is_kept_for_who_has_the_same_rights_and_nobody_else(
    as_role: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "KEPT", 3600.0)
    asked: list[str] = []

    def trouble(using: str, may: Any) -> Iterator[Said]:
        asked.append(using)
        yield Said("steps" if may("ems.view_step") else "topics")

    monkeypatch.setattr(index, "trouble", trouble)
    for right, count in (("step", 1), ("step", 1), ("topic", 2), ("topic", 2)):
        html = as_role("staff", f"ems.view_{right}").get(INDEX).text
        assert lines(html) == [f"alarm {right}s"]
        assert len(asked) == count
    monkeypatch.setattr(index, "KEPT", 0.0)
    as_role("staff", "ems.view_step").get(INDEX)
    assert len(asked) == 3


def test_an_error_of_ours_is_no_database_that_is_away(
    root: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(using: str, may: Any) -> Iterator[Said]:
        yield Said("Something is wrong.")
        raise ValueError("not so")

    monkeypatch.setattr(MonitoringConfig, "ems_trouble", lambda self, using, may: wrong(using, may))
    assert {
        "alarm Something is wrong.",
        "failed The database default could not be asked: see the log.",
    } <= set(lines(root.get(INDEX).text))
    (record,) = [one for one in caplog.records if one.name == "streams.admin"]
    values = vars(record)
    assert values["ems_event"] == "admin.not_asked"
    assert (values["ems_database"], values["ems_error"]) == ("default", "ValueError")
    assert record.exc_info


def test_a_database_that_is_still_asked_is_not_said_to_be_away(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = Event()
    asked: list[str] = []

    def trouble(using: str, may: Any) -> list[Said]:
        asked.append(using)
        hang.wait(30)
        return [Said("All burns.")]

    monkeypatch.setattr(index, "trouble", trouble)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(each, "WAITED", 0.05)
            for _ in range(2):
                said = lines(root.get(INDEX).text)
                assert said == ["slow The database default is still being asked."]
    finally:
        hang.set()
    assert len(asked) == 1


def test_a_database_that_hangs_leaves_the_index_as_it_is_and_what_was_said_is_shown(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = Event()

    def trouble(using: str, may: Any) -> Iterator[Said]:
        yield Said("Something is wrong.")
        hang.wait(30)

    monkeypatch.setattr(index, "trouble", trouble)
    began = time.monotonic()
    try:
        html = root.get(INDEX).text
    finally:
        hang.set()
    assert time.monotonic() - began < 5
    assert lines(html) == [
        "alarm Something is wrong.",
        "slow The database default has not answered everything within a second.",
    ]
    assert "Authentication and Authorization" in html


def test_a_database_that_is_away_is_said_and_the_rest_of_the_admin_goes_on(
    root: Client, ems_settings: Callable[..., None]
) -> None:
    ems_settings(DATABASE="other")
    connections["other"].close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["other"].settings_dict, "NAME", "/nowhere/none")
        answer = root.get(INDEX)
        assert answer.status_code == 200
        assert lines(answer.text)[0].startswith("away The database other has not answered")
        assert root.get(reverse("admin:auth_user_changelist")).status_code == 200
        connections["other"].close()


def test_a_database_without_tables_is_said_with_what_to_do(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(using: str, may: Any) -> list[Said]:
        raise OperationalError(1146, "no such table: ems_step")

    monkeypatch.setattr(index, "trouble", missing)
    monkeypatch.setattr(index, "tables_missing", lambda error: True)
    assert "python manage.py migrate --database default" in lines(root.get(INDEX).text)[0]


def test_with_topics_on_several_databases_each_says_how_it_is(
    root: Client, ems_settings: Callable[..., None]
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    run_steps()
    said = lines(root.get(INDEX).text)
    assert said[0].startswith("alarm other: No consumer or beat has run")
    assert not [one for one in said if "default: No consumer" in one]
    (link,) = re.findall(r'href="([^"]+step[^"]+)"', box(root.get(INDEX).text))
    assert link.endswith("?database=other")
    assert root.get(link).status_code == 200


# -- in every project --


@pytest.fixture
def serve(settings: Any) -> Callable[[admin.AdminSite], Client]:
    """Serve an AdminSite of the project, with the topics of EMS, at /ops/."""

    def serve_one(site: admin.AdminSite) -> Client:
        site.register(Topic, TopicAdmin)
        urls: Any = ModuleType("urls_of_a_project")
        urls.urlpatterns = [path("ops/", site.urls), path("admin/", admin.site.urls)]
        settings.ROOT_URLCONF = urls
        client = Client()
        client.force_login(User.objects.create(username="ann", is_staff=True, is_superuser=True))
        return client

    return serve_one


def with_templates(settings: Any, templates: dict[str, str]) -> None:
    (given,) = settings.TEMPLATES
    loaders = [
        ("django.template.loaders.locmem.Loader", templates),
        "django.template.loaders.app_directories.Loader",
    ]
    options = {**given["OPTIONS"], "loaders": loaders}
    settings.TEMPLATES = [{**given, "APP_DIRS": False, "OPTIONS": options}]


OURS = "{% block content %}<p>ours</p>{{ block.super }}{% endblock %}"
OWN = "{% extends 'admin/index.html' %}" + OURS


def test_the_project_has_an_admin_site_of_its_own_and_the_links_stay_there(
    serve: Callable[[admin.AdminSite], Client],
) -> None:
    class Ops(admin.AdminSite):
        site_header = "Operations"

    html = serve(Ops(name="ops")).get("/ops/").text
    assert "Operations" in html
    assert 'href="/ops/ems/step/"' not in box(html)  # it has no such page
    assert lines(html)[0].startswith("alarm No consumer or beat")


def test_the_project_has_its_own_index_template(
    serve: Callable[[admin.AdminSite], Client], settings: Any
) -> None:
    class Ops(admin.AdminSite):
        index_template = "ours.html"

    with_templates(settings, {"ours.html": OWN})
    html = serve(Ops(name="ops")).get("/ops/").text
    assert html.index("ems-box") < html.index("<p>ours</p>") < html.index("content-main")


def test_the_project_overrides_the_index_template_of_django(root: Client, settings: Any) -> None:
    with_templates(settings, {"admin/index.html": OWN})
    html = root.get(INDEX).text
    assert html.index("ems-box") < html.index("<p>ours</p>") < html.index("content-main")


@pytest.mark.parametrize("body", ["no template", None])
def test_an_index_that_is_no_template_to_extend_stays_as_it_is(
    serve: Callable[[admin.AdminSite], Client], settings: Any, body: str | None
) -> None:
    class Ops(admin.AdminSite):
        def index(self, request: Any, extra_context: Any = None) -> Any:
            if body:
                return HttpResponse(body)
            return super().index(request, extra_context).render()

    html = serve(Ops(name="ops")).get("/ops/").text
    assert "ems-box" not in html
    assert (body or "content-main") in html


def test_a_template_without_the_block_shows_the_index_as_it_was(
    root: Client, settings: Any
) -> None:
    with_templates(settings, {"admin/index.html": "<html>all our own</html>"})
    assert root.get(INDEX).text.strip() == "<html>all our own</html>"


def test_the_index_is_begun_once_however_many_tables_are_registered() -> None:
    site = admin.AdminSite(name="twice")
    StreamsAdmin(Topic, site)
    first = site.index
    StreamsAdmin(Step, site)
    assert site.index is first


# -- tables that only Spark fills --


def listed(root: Client) -> set[str]:
    return set(re.findall(r'href="/admin/ems_monitoring/(\w+)/"', root.get(INDEX).text))


def test_a_table_of_spark_is_hidden_until_it_has_rows_and_its_url_shows_it_anyway(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed(root) == {"overview", "alarmrule", "alarmchannel"}
    for model in (Run, Traffic):
        url = reverse(f"admin:ems_monitoring_{model._meta.model_name}_changelist")
        assert root.get(url).status_code == 200
    Run.objects.create(job="traffic", state="done")
    assert "run" not in listed(root)  # a process looks once a minute
    monkeypatch.setattr(filled, "_asked_at", -filled.FRESH)
    assert listed(root) == {"overview", "alarmrule", "alarmchannel", "run"}
    Run.objects.all().delete()
    assert "run" in listed(root)


def test_the_lists_of_the_admin_wait_for_no_database(
    root: Client, ems_settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ems_settings(DATABASE="other")
    connections["other"].close()
    monkeypatch.setattr(each, "WAITED", 0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["other"].settings_dict, "NAME", "/nowhere/none")
        assert root.get(reverse("admin:auth_user_changelist")).status_code == 200
        assert listed(root) == {"overview", "alarmrule", "alarmchannel"}
        connections["other"].close()

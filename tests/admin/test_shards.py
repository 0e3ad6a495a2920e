"""Topics on several databases: each page of the admin works on the one that its URL names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from html import unescape
from itertools import count
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import OperationalError, connections
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from streams.admin.alarm import Said
from streams.admin.parts import journal
from streams.admin.parts.links import Links, naming
from streams.admin.parts.look import look
from streams.database import each
from streams.database.each import Reply, ReplyState
from streams.models import (
    CheckEndpoint,
    ConsumerGroup,
    DeadMessage,
    Message,
    RetryMessage,
    Step,
    SystemConfig,
    Topic,
    UtcNow,
)
from tests.admin.conftest import action
from tests.admin.test_actions import confirm, preview
from tests.admin.world import run_steps
from tests.conftest import pytest_runtest_teardown

pytestmark = pytest.mark.django_db(databases=["default", "other"])

TOPICS = reverse("admin:ems_topic_changelist")
GROUPS = reverse("admin:ems_consumergroup_changelist")
LETTERS = reverse("admin:ems_deadmessage_changelist")
CONFIG = reverse("admin:ems_systemconfig_changelist")
OVERVIEW = reverse("admin:ems_monitoring_overview_changelist")
TOKENS = reverse("admin:ems_apitoken_changelist")
OTHER = "?database=other"


@pytest.fixture
def sharded(ems_settings: Any, db: None) -> DeadMessage:
    """The dead letter of ``clicks`` on ``other``, where the ids are the same as on ``default``."""
    ems_settings(SHARDS={"clicks": "other"})
    make_letter("sales", "default")
    return make_letter("clicks", "other")


def make_letter(name: str, using: str, pk: int = 1_000_000) -> DeadMessage:
    """Make a letter of this id: what a test has rolled back still counts for the next one."""
    topic = Topic.objects.using(using).create(name=name, pk=pk)
    group = ConsumerGroup.objects.using(using).create(topic=topic, name=f"{name}-mail", pk=pk)
    return DeadMessage.objects.using(using).create(
        pk=pk,
        topic=topic,
        group=group,
        partition=topic.partitions.using(using).get(),
        offset=0,
        message_id=1,
        body=f"body of {name}".encode(),
        body_type="text",
        size=14,
        producer="p",
        sent_at=timezone.now(),
        attempts=1,
        error_class="ValueError",
        error="no",
    )


@pytest.fixture
def root(admin_client: Any) -> Any:
    return admin_client


def pages_of(letter: DeadMessage) -> dict[str, str]:
    monitoring = "admin:ems_monitoring_overview_"
    return {
        "topics": TOPICS,
        "topic": reverse("admin:ems_topic_change", args=[letter.topic_id]),
        "add a topic": reverse("admin:ems_topic_add"),
        "history": reverse("admin:ems_topic_history", args=[letter.topic_id]),
        "groups": GROUPS,
        "letters": LETTERS,
        "letter": reverse("admin:ems_deadmessage_change", args=[letter.pk]),
        "edit": reverse("admin:ems_deadmessage_edit", args=[letter.pk]),
        "messages": reverse("admin:ems_message_changelist"),
        "settings": CONFIG,
        "traffic": reverse("admin:ems_monitoring_traffic_changelist"),
        "overview": OVERVIEW,
        "a topic's figures": reverse(f"{monitoring}topic", args=[letter.topic_id]),
        "a group's figures": reverse(f"{monitoring}group", args=[letter.group_id]),
        "search": reverse(f"{monitoring}search"),
        "alarms": reverse(f"{monitoring}alarms"),
    }


def leading(text: str) -> set[str]:
    """The links and targets of forms of a page, without those of the switch."""
    text = re.sub(r'<nav class="ems-databases".*?</nav>', "", text, flags=re.DOTALL)
    found = re.findall(r'<(?:a|form|button)\b[^>]*?\b(?:href|action|formaction)="([^"]+)"', text)
    return {unescape(url) for url in found}


def is_sharded(url: str) -> bool:
    home_only = ("apitoken", "checkendpoint", "alarmchannel", "alarmrule")
    is_page = re.match(r"/admin/ems(_monitoring)?/\w+/", url)
    return url.startswith("?") or bool(is_page and not any(name in url for name in home_only))


def test_every_page_works_on_the_database_of_its_url_and_so_does_each_of_its_links(sharded, root):
    for name, url in pages_of(sharded).items():
        response = root.get(url)
        assert (response.status_code, response["Location"]) == (302, url + "?database=default"), (
            name
        )
    for name, url in pages_of(sharded).items():
        response = root.get(url + OTHER)
        assert response.status_code == 200, name
        assert "Database: <strong>other</strong>" in response.text, name
        assert "sales" not in response.text, name
        lost = [to for to in leading(response.text) if is_sharded(to) and "database=" not in to]
        assert not lost, name
        for form in re.findall(r'<form\b[^>]*method="get".*?</form>', response.text, re.DOTALL):
            assert '<input type="hidden" name="database" value="other">' in form, name
    for name in ("topics", "topic", "groups", "letters", "overview"):
        assert "clicks" in root.get(pages_of(sharded)[name] + OTHER).text


def test_filters_and_pages_of_a_list_take_no_offence_at_it(sharded, root):
    url = f"{LETTERS}{OTHER}&state=waiting"
    page = root.get(url)
    assert page.status_code == 200  # Django answers what it does not know with ?e=1
    assert page.context["cl"].result_count == 1
    assert any(to.startswith("?") and "database=other" in to for to in leading(page.text))


def test_an_alias_that_has_no_topics_is_not_found(sharded, root, as_role):
    for query in ("?database=nowhere", "?database=", "?database=other&database=default"):
        assert root.get(TOPICS + query).status_code == 404
        assert root.post(TOPICS + query, action("retire", 1)).status_code == 404
    stranger = as_role("anonymous").get(TOPICS + "?database=nowhere")
    assert stranger.status_code == 302
    assert stranger["Location"].startswith(reverse("admin:login"))
    assert as_role("staff").get(TOPICS + OTHER).status_code == 403


def test_two_tabs_never_act_on_the_wrong_database(sharded, root):
    root.get(GROUPS + OTHER)
    here = root.get(GROUPS)
    assert here["Location"] == GROUPS + OTHER  # as chosen in the other tab, and the page says so
    response = root.post(GROUPS, action("pause", sharded.group_id), follow=True)
    assert response.redirect_chain == [(GROUPS + OTHER, 302)]
    assert "Nothing was done" in response.text
    for alias in ("default", "other"):
        assert not ConsumerGroup.objects.using(alias).get().paused
    response = root.post(GROUPS + "?database=default", action("pause", sharded.group_id))
    assert response["Location"] == GROUPS + "?database=default"
    assert ConsumerGroup.objects.using("default").get().paused
    assert not ConsumerGroup.objects.using("other").get().paused


def test_a_script_that_looks_again_at_its_page_chooses_nothing(sharded, root):
    root.get(OVERVIEW + OTHER)
    root.get(OVERVIEW + "?database=default", headers={"X-Requested-With": "XMLHttpRequest"})
    assert root.get(OVERVIEW)["Location"] == OVERVIEW + OTHER


def test_what_was_chosen_and_is_no_shard_any_more_is_forgotten(sharded, root, ems_settings):
    root.get(GROUPS + OTHER)
    ems_settings(SHARDS={})
    assert root.get(GROUPS).status_code == 200
    ems_settings(DATABASE="other", SHARDS={"clicks": "default"})
    assert root.get(GROUPS)["Location"] == GROUPS + OTHER


def test_a_redirect_leads_to_no_other_host(sharded, root):
    response = root.get(f"{TOPICS}?q=//evil.example/&next=https://evil.example/")
    assert response["Location"].startswith(TOPICS + "?q=")
    links = Links("other", (TOPICS,))
    for url in ("https://evil.example/", "//evil.example" + TOPICS, "/admin/", "#top"):
        assert links.url(url) == url
    assert naming("/a/?x=1#y", "other") == "/a/?x=1&database=other#y"


def test_forms_and_many_rows_act_there_and_what_was_offered_is_of_one_database(sharded, root):
    url = LETTERS + OTHER
    shown = preview(root, "redrive", sharded.pk, url=url)
    response = confirm(root, shown)
    assert response["Location"].startswith(url)
    retry = RetryMessage.objects.using("other").get()
    assert retry.dead_letter_id == sharded.pk
    assert not RetryMessage.objects.using("default").exists()
    # A preview of the one database says nothing of the other, where the ids are the same.
    edit = reverse("admin:ems_deadmessage_edit", args=[make_letter("more", "other", 2_000_000).pk])
    make_letter("more", "default", 2_000_000)
    form = {"body": "new", "body_type": "text", "key": "", "tag": "", "headers": ""}
    shown = root.post(edit + OTHER, form)
    (offer,) = re.findall(r'name="offer" value="([^"]+)"', shown.text)
    refused = root.post(edit + "?database=default", {"offer": offer}, follow=True)
    assert "not valid any more" in refused.text
    assert RetryMessage.objects.using("default").count() == 0
    root.post(edit + OTHER, {"offer": offer})
    assert RetryMessage.objects.using("other").count() == 2


def test_django_s_own_forms_save_there_and_come_back_there(sharded, root):
    form = {"name": "consumerThreads", "value": "3"}
    response = root.post(reverse("admin:ems_systemconfig_add") + OTHER, form)
    assert response["Location"] == CONFIG + OTHER
    assert SystemConfig.objects.using("other").overrides() == {"consumerThreads": 3}
    assert not SystemConfig.objects.using("default").overrides()


def test_downloads_and_exports_are_of_that_database(sharded, root):
    body = reverse("admin:ems_deadmessage_body", args=[sharded.pk])
    assert root.get(body + OTHER).content == b"body of clicks"
    assert root.get(body + "?database=default").content == b"body of sales"
    csv = root.post(LETTERS + OTHER, action("export", sharded.pk)).getvalue().decode()
    assert "clicks" in csv
    assert "sales" not in csv


def test_the_log_of_the_admin_tells_the_databases_apart(sharded, root):
    for query in (OTHER, "?database=default"):
        root.post(GROUPS + query, action("pause", sharded.group_id))
    there, here = LogEntry.objects.order_by("pk")
    assert (here.object_id, here.object_repr) == (str(sharded.group_id), "sales-mail on sales")
    assert there.object_id == f"other:{sharded.group_id}"
    assert there.object_repr.endswith("(other)")
    page = reverse("admin:ems_consumergroup_change", args=[sharded.group_id])
    history = reverse("admin:ems_consumergroup_history", args=[sharded.group_id])
    for query in (OTHER, "?database=default"):
        assert len(root.get(history + query).context["action_list"]) == 1
    # The list of recent actions at the start of the admin leads to it, whatever was opened last.
    assert root.get(there.get_admin_url())["Location"] == page + OTHER
    root.get(GROUPS + OTHER)
    assert root.get(here.get_admin_url())["Location"] == page + "?database=default"
    figures = reverse("admin:ems_monitoring_overview_group", args=[sharded.group_id])
    assert root.get(figures)["Location"] == figures + "?database=default"
    root.post(reverse("admin:ems_topic_add") + OTHER, {"name": "new", "access": "read-write"})
    added = LogEntry.objects.latest("pk")
    assert added.object_id == f"other:{Topic.objects.using('other').get(name='new').pk}"


def test_pages_of_tables_that_are_on_one_database_ignore_the_switch(sharded, root):
    root.get(GROUPS + OTHER)
    for url in (TOKENS, TOKENS + OTHER):
        page = root.get(url)
        assert page.status_code == 200
        assert "Database: <strong>default</strong>" in page.text
    form = {
        "name": "shop",
        "expires_at_0": "",
        "expires_at_1": "",
        **{f"rights-{name}": "0" for name in ("TOTAL_FORMS", "INITIAL_FORMS")},
    }
    response = root.post(reverse("admin:ems_apitoken_add"), form)
    assert response.status_code == 200  # neither refused nor redirected
    CheckEndpoint.objects.create(name="bank-of-all", url="https://bank.example/", secret="s" * 32)
    assert "bank-of-all" in root.get(reverse("admin:ems_preparedrow_changelist") + OTHER).text


def test_the_figures_as_json_say_their_database_and_so_do_their_links(sharded, root):
    topic = Topic.objects.using("other").get()
    partition = topic.partitions.using("other").get()
    row = Message.objects.using("other").create(
        partition=partition,
        offset=0,
        body=b"x",
        body_type="text",
        size=1,
        producer="p",
        sequenced_at=timezone.now(),
        key="k",
    )
    search = reverse("admin:ems_monitoring_overview_search")
    found = root.get(f"{search}{OTHER}&format=json&q={row.pk}").json()
    assert found["database"] == "other"
    assert [hit["url"] for hit in found["hits"]] == [
        reverse("admin:ems_message_change", args=[row.pk]) + OTHER
    ]


def test_the_switch_leads_from_a_row_to_the_list_and_keeps_what_means_the_same(sharded, root):
    def urls(url: str) -> list[str]:
        found = re.search(r'<nav class="ems-databases".*?</ul>', root.get(url).text, re.DOTALL)
        assert found
        return [unescape(to) for to in re.findall(r'href="([^"]+)"', found[0])]

    both = [f"{TOPICS}?database=default", f"{TOPICS}{OTHER}"]
    assert urls(f"{TOPICS}{OTHER}&q=x&p=1") == both
    assert urls(reverse("admin:ems_topic_change", args=[sharded.topic_id]) + OTHER) == both
    page = reverse("admin:ems_monitoring_overview_topic", args=[sharded.topic_id])
    topics = reverse("admin:ems_monitoring_overview_topics")
    assert urls(f"{page}{OTHER}&range=24h&purge=1")[0] == f"{topics}?range=24h&database=default"


def test_without_shards_nothing_is_seen_stored_or_asked(db, root):
    assert root.get(GROUPS + OTHER).status_code == 400  # as any other parameter
    before = Session.objects.get().session_data
    with CaptureQueriesContext(connections["default"]) as queries:
        page = root.get(GROUPS)
    assert page.status_code == 200
    assert "ems-databases" not in page.text
    assert "database=" not in page.text
    assert Session.objects.get().session_data == before
    assert not [one for one in queries if "django_session" in one["sql"] and "UPDATE" in one["sql"]]


# -- how the others are --


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_every_page_says_how_the_others_are_and_the_start_page_has_their_alarms(sharded, root):
    for alias in ("default", "other"):
        ConsumerGroup.objects.using(alias).pause()  # then nobody need run
    run_steps()
    Step.objects.using("other").update(last_run_at=UtcNow(-timedelta(hours=1)))
    page = root.get(TOPICS + "?database=default").text
    assert "ems-alarm" not in page
    (other,) = re.findall(r'<a class="ems-database" href="([^"]+)" title="([^"]+)"', page)
    assert other[0] == TOPICS + OTHER
    assert other[1].startswith("No consumer or beat has run since")
    assert "ems-alarm" in root.get(TOPICS + OTHER).text  # where it is looked at when it is rendered
    start = root.get(reverse("admin:app_list", args=["ems"])).text
    (alarm,) = re.findall(r'<p class="ems-alarm".*?</p>', start)
    steps = reverse("admin:ems_step_changelist") + OTHER
    link = f'<a href="{OVERVIEW}{OTHER}">other</a>: <strong><a href="{steps}">No consumer or beat'
    assert link in alarm


def test_a_database_is_not_blamed_for_another_one(sharded, root, monkeypatch):
    def lost(using: str) -> Any:
        """As by a server that ends the connection; Django notes on which one it was."""
        driver: Any = connections[using].Database  # type: ignore[attr-defined]
        with connections[using].wrap_database_errors:
            raise driver.OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(root, "raise_request_exception", False)
    done = action("pause", sharded.group_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "note", lambda *args, **kwargs: lost("default"))
        assert root.post(GROUPS + OTHER, done).status_code == 500
        patch.setattr(journal, "note", lambda *args, **kwargs: lost("other"))
        page = root.post(GROUPS + OTHER, done)
    assert page.status_code == 503
    assert "may have been done" in page.text


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_a_database_that_is_away_takes_only_its_own_pages_with_it(sharded, root, caplog):
    run_steps()
    ConsumerGroup.objects.pause()
    connections["other"].close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["other"].settings_dict, "NAME", "/nowhere/none")
        page = root.get(TOPICS + "?database=default")
        assert page.status_code == 200
        assert "away" in page.text
        pages = pages_of(sharded)
        for name in ("topics", "letter", "settings", "overview"):
            away = root.get(pages[name] + OTHER)
            assert away.status_code == 503
            assert "Database: <strong>other</strong>" in away.text
            assert "?database=default" in away.text  # the way out of it
        assert root.post(GROUPS + OTHER, action("pause", sharded.group_id)).status_code == 503
        assert "other" in root.get(reverse("admin:app_list", args=["ems"])).text
        connections["other"].close()
    assert root.get(TOPICS + OTHER).status_code == 200


def test_no_page_waits_for_a_database_that_hangs(monkeypatch):
    monkeypatch.setattr(each, "WAITED", 0.2)
    hang = Event()
    asked = []

    def ask(alias: str) -> list[Said]:
        asked.append(alias)
        if alias == "hangs":
            hang.wait(30)
        return [Said("" if alias == "well" else "It burns.")]

    try:
        for _ in range(2):
            assert look("how", ["well", "hangs", "burns"], ask) == [
                Reply("well", (Said(),)),
                Reply("hangs", state=ReplyState.ASKED),
                Reply("burns", (Said("It burns."),)),
            ]
        assert asked.count("hangs") == 1  # it is not asked again while it has not answered
    finally:
        hang.set()


def test_pages_that_come_one_after_the_other_ask_one_that_hangs_no_more(monkeypatch):
    monkeypatch.setattr(each, "WAITED", 0.02)
    # One call when a page comes, and one before it waits: so a page each 0.016 s.
    clock = SimpleNamespace(monotonic=partial(next, count(step=0.008)))
    monkeypatch.setattr(each, "time", clock)
    hang = Event()
    asked = []

    def ask(alias: str) -> list[Said]:
        asked.append(alias)
        hang.wait(30)
        return []

    try:
        for _ in range(20):
            assert look("how", ["slow"], ask) == [Reply("slow", state=ReplyState.ASKED)]
        assert len(asked) == 1
    finally:
        hang.set()


def test_a_long_question_makes_a_database_slow_for_no_other_question(monkeypatch):
    hang = Event()

    def long(alias: str) -> Iterator[Said]:
        yield Said("It burns.")
        hang.wait(30)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(each, "WAITED", 0.02)
            for _ in range(2):  # who comes second is told what is said so far
                assert look("long", ["one"], long) == [
                    Reply("one", (Said("It burns."),), ReplyState.ASKED)
                ]
        assert look("short", ["one"], lambda alias: [Said()]) == [Reply("one", (Said(),))]
    finally:
        hang.set()


def test_a_database_that_was_away_is_away_until_it_answers(monkeypatch):
    hang = Event()

    def refuse(alias: str) -> list[Said]:
        raise OperationalError(2003, "cannot connect")

    def wait(alias: str) -> list[Said]:
        hang.wait(30)
        return []

    assert look("how", ["one"], refuse) == [Reply("one", state=ReplyState.AWAY)]
    try:
        with monkeypatch.context() as patch:
            patch.setattr(each, "WAITED", 0.02)
            assert look("how", ["one"], wait) == [Reply("one", state=ReplyState.AWAY)]
    finally:
        hang.set()
    assert look("how", ["one"], wait) == [Reply("one")]


def test_no_question_outlives_the_test_that_has_asked_it(monkeypatch):
    monkeypatch.setattr(each, "WAITED", 0.02)
    hang = Event()

    def ask(alias: str) -> list[Said]:
        hang.wait(30)
        return []

    kinds = ("one", "two")
    for kind in kinds:
        look(kind, ["default", "other"], ask)
    threads = [asked.thread for asked in each._questions.values()]
    assert len(threads) == 4
    Timer(0.1, hang.set).start()
    pytest_runtest_teardown()
    assert not any(thread.is_alive() for thread in threads)
    assert not each._questions

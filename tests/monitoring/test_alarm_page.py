"""The page of the alarms: who may see and do what, what it shows, and what it keeps secret."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from monitoring.alarms.rules import find_rule, rules
from monitoring.models import Alarm, AlarmChannel, AlarmNotification, AlarmRule
from monitoring.pages.alarms import AlarmsPage
from streams.models import ConsumerGroup, Topic, UtcNow
from tests.monitoring.alarming import alarm, channel, receiver

pytestmark = pytest.mark.django_db

VIEW = ("ems_monitoring.view_overview", "ems_monitoring.view_alarm")
SEE = (*VIEW, "ems_monitoring.view_alarmrule", "ems_monitoring.view_alarmchannel")
VERBS = {
    "acknowledge": "ems_monitoring.acknowledge_alarm",
    "mute": "ems_monitoring.mute_alarmrule",
    "test": "ems_monitoring.test_alarmchannel",
}
FORMS = ("alarmrule", "alarmchannel")


@pytest.fixture
def browser() -> Callable[..., Client]:
    """``browser("app.codename", …)`` is a browser of a member of staff with these."""

    def log_in(*names: str, staff: bool = True, **options: Any) -> Client:
        user = User.objects.create(username=f"u{User.objects.count()}", is_staff=staff)
        for name in names:
            app, codename = name.split(".")
            found = Permission.objects.get(content_type__app_label=app, codename=codename)
            user.user_permissions.add(found)
        client = Client(**options)
        client.force_login(user)
        return client

    return log_in


def url() -> str:
    return AlarmsPage.url()


def posts(row: Alarm, where: AlarmChannel) -> dict[str, dict[str, Any]]:
    return {
        "acknowledge": {"verb": "acknowledge", "id": row.pk, "note": "on it"},
        "mute": {"verb": "mute", "rule": "lag_age", "hours": "8"},
        "test": {"verb": "test", "id": where.pk},
    }


def written() -> list[Any]:
    rows = [list(model.objects.order_by("pk").values()) for model in (Alarm, AlarmChannel)]
    counts = [model.objects.count() for model in (AlarmRule, AlarmNotification, LogEntry)]
    return [*rows, *counts]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_the_page_answers_each_role_and_method_as_it_must(
    method: str, browser: Callable[..., Client]
) -> None:
    row, where = alarm(), channel("http://127.0.0.1:1/")
    roles = {
        "anonymous": Client(),
        "not staff": browser(*VIEW, *VERBS.values(), staff=False),
        "staff": browser(),
        "doer without view": browser(*VERBS.values()),
        "half a viewer": browser(VIEW[0]),
        "viewer": browser(*VIEW),
    }
    before = written()
    for role, client in roles.items():
        for query in ("", "?format=json"):
            for data in ({}, *posts(row, where).values()):
                if method in ("GET", "HEAD"):
                    answer = client.generic(method, url() + query)
                    expected = 200
                elif method == "POST":
                    answer = client.post(url() + query, data)
                    expected = 403 if data else 400
                else:
                    answer = client.generic(method, url() + query)
                    expected = 405
                if role in ("anonymous", "not staff"):
                    expected = 302
                elif role != "viewer":
                    expected = 403
                assert answer.status_code == expected, (role, query, data)
    assert written() == before


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_needs_its_own_permission_and_leaves_an_entry(
    verb: str, browser: Callable[..., Client]
) -> None:
    with receiver() as server:
        row, where = alarm(), channel(server.url)
        data = posts(row, where)[verb]
        others = [permission for name, permission in VERBS.items() if name != verb]
        before = written()
        assert browser(*VIEW, *others).post(url(), data).status_code == 403
        strict = browser(*VIEW, VERBS[verb], enforce_csrf_checks=True)
        assert strict.post(url(), data).status_code == 403
        mine = browser(*VIEW, VERBS[verb])
        assert mine.get(url(), data).status_code == 200
        assert written() == before
        assert mine.post(url(), data).status_code == 302
    entry = LogEntry.objects.get()
    assert entry.change_message
    row.refresh_from_db()
    assert (row.state == "acknowledged") == (verb == "acknowledge")
    assert bool(find_rule("lag_age", "default").muted_until) == (verb == "mute")
    assert len(server.got) == (verb == "test")


def test_who_may_not_do_it_is_not_offered_it(browser: Callable[..., Client]) -> None:
    alarm()
    channel("http://127.0.0.1:1/")
    viewer = browser(*SEE).get(url()).text

    for verb, permission in VERBS.items():
        shown = f'name="verb" value="{verb}"'
        assert shown not in viewer
        assert shown in browser(*SEE, permission).get(url()).text


@pytest.mark.parametrize(
    ("name", "permission"), [("channels", "alarmchannel"), ("rules", "alarmrule")]
)
def test_rules_and_channels_are_shown_to_who_may_view_their_table(
    name: str, permission: str, browser: Callable[..., Client]
) -> None:
    channel("", kind="email", recipients="ann@example.com", last_error="550 ann")
    AlarmRule.objects.create(name="my-rule", metric="lag")
    marks = {"channels": ("ann@example.com", "550 ann"), "rules": ("my-rule", "lag_age")}
    for query in ("", "?format=json"):
        without = browser(*(one for one in SEE if not one.endswith(permission))).get(url() + query)
        for verb in ("view", "change"):  # who may change rows may view them
            allowed = browser(*VIEW, f"ems_monitoring.{verb}_{permission}").get(url() + query)
            for text in marks[name]:
                assert text in allowed.text
                assert text not in without.text
    assert without.json()[name] is None


@pytest.mark.parametrize(
    "data",
    [
        {"verb": "acknowledge", "id": "999"},
        {"verb": "acknowledge", "id": "1 OR 1"},
        {"verb": "acknowledge"},
        {"verb": "mute", "rule": "nothing", "hours": "8"},
        {"verb": "mute", "rule": "lag_age", "hours": "9999999"},
        {"verb": "test", "id": "999"},
    ],
)
def test_what_is_not_there_changes_nothing(
    data: dict[str, str], browser: Callable[..., Client]
) -> None:
    before = written()
    client = browser(*VIEW, *VERBS.values())
    assert "not there any more" in client.post(url(), data, follow=True).text
    assert written() == before


def test_a_mute_ends_and_an_acknowledgement_is_made_once(browser: Callable[..., Client]) -> None:
    row, where = alarm(), channel("http://127.0.0.1:1/")
    client = browser(*SEE, *VERBS.values())
    client.post(url(), posts(row, where)["mute"])
    assert "muted until" in client.get(url()).text
    client.post(url(), {"verb": "mute", "rule": "lag_age", "hours": ""})
    assert find_rule("lag_age", "default").muted_until is None
    client.post(url(), posts(row, where)["acknowledge"])
    again = client.post(url(), posts(row, where)["acknowledge"], follow=True).text
    assert "somebody has acknowledged it already" in again
    failed = client.post(url(), posts(row, where)["test"], follow=True).text
    assert "The test failed: ConnectionRefusedError" in failed


def test_it_shows_what_fires_what_was_and_where_it_leads(browser: Callable[..., Client]) -> None:
    topic = Topic.objects.create(name="orders")
    group = ConsumerGroup.objects.create(topic=topic, name="mail")
    alarm(detail="<script>", runbook="https://wiki.example.com/lag", value=2_000_000)
    alarm(subject="other", state="acknowledged", acknowledged_by="ann", note="<b>on it")
    ago = UtcNow(-timedelta(hours=1))
    alarm(subject="past", group="", slot=None, state="resolved", fired_at=ago, resolved_at=UtcNow())
    alarm(subject="later", state="pending")
    html = browser(*VIEW).get(url()).text
    for text in ("2,000,000", "&lt;script&gt;", "wiki.example.com/lag", "&lt;b&gt;on it", "past"):
        assert text in html
    assert reverse("admin:ems_consumergroup_change", args=[group.pk]) in html
    assert "later" not in html
    figures = browser(*SEE).get(url() + "?format=json").json()
    names = ("firing", "acknowledged", "resolved", "rules")
    assert [len(figures[name]) for name in names] == [1, 1, 1, len(rules("default"))]


def test_a_runbook_is_a_link_only_if_it_is_one(browser: Callable[..., Client]) -> None:
    alarm(runbook="javascript:alert(1)")
    assert "javascript:" not in browser(*VIEW).get(url()).text


def test_its_queries_do_not_grow_and_are_at_most_twelve(browser: Callable[..., Client]) -> None:
    client = browser(*SEE, *VERBS.values())
    counts = []
    for number in (1, 40):
        for n in range(Alarm.objects.count(), number):
            topic = Topic.objects.create(name=f"t{n}")
            ConsumerGroup.objects.create(topic=topic, name=f"g{n}")
            alarm(subject=f"g{n} on t{n}", topic=f"t{n}", group=f"g{n}")
            channel("http://127.0.0.1:1/", name=f"c{n}")
            AlarmRule.objects.create(name=f"r{n}", metric="lag").channels.add(
                AlarmChannel.objects.get(name=f"c{n}")
            )
        client.get(url())
        with CaptureQueriesContext(connection) as found:
            client.get(url())
        counts.append(len(found))
    assert counts[0] == counts[1]
    session = sum("django_session" in q["sql"] or "auth_" in q["sql"] for q in found)
    assert counts[1] - session <= 12


# -- the forms --


def test_the_forms_are_for_who_has_their_permissions(browser: Callable[..., Client]) -> None:
    channel("http://127.0.0.1:1/SECRET1", secret="SECRET2")
    AlarmRule.objects.create(name="lag", metric="lag")
    rows = {"alarmrule": AlarmRule.objects.get().pk, "alarmchannel": AlarmChannel.objects.get().pk}
    before = written()
    for model in FORMS:
        base = f"admin:ems_monitoring_{model}"
        pages = {
            "view": reverse(f"{base}_changelist"),
            "add": reverse(f"{base}_add"),
            "change": reverse(f"{base}_change", args=[rows[model]]),
            "delete": reverse(f"{base}_delete", args=[rows[model]]),
        }
        for held in (None, *pages):
            client = browser(*([f"ems_monitoring.{held}_{model}"] if held else []))
            for needed, page in pages.items():
                allowed = {needed, "change"} if needed == "view" else {needed}
                allowed |= {"view"} if needed == "change" else set()
                got = client.get(page)
                assert (got.status_code == 200) == (held in allowed), (model, held, needed)
                assert "SECRET" not in got.text
                if needed not in (held, "view"):
                    assert client.post(page, {"post": "yes"}).status_code == 403
    assert written() == before


def test_a_secret_is_kept_where_it_is_left_empty_and_never_shown(
    browser: Callable[..., Client],
) -> None:
    names = ("add", "change", "view")
    client = browser(*(f"ems_monitoring.{name}_alarmchannel" for name in names))
    data = {"name": "ops", "kind": "webhook", "enabled": "on", "recipients": ""}
    secrets = {"url": "https://chat.example/SECRET1", "secret": "SECRET2"}
    add = reverse("admin:ems_monitoring_alarmchannel_add")
    assert "Give a URL" in client.post(add, data).text
    assert client.post(add, {**data, **secrets}).status_code == 302
    row = AlarmChannel.objects.get()
    change = reverse("admin:ems_monitoring_alarmchannel_change", args=[row.pk])
    shown = client.get(change).text + client.get(add.replace("add/", "")).text
    assert "SECRET" not in shown
    assert "https://chat.example/…" in shown
    answer = client.post(change, {**data, "name": "night", "url": "", "secret": ""})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert (row.name, row.url, row.secret) == ("night", *secrets.values())
    client.post(change, {**data, "name": "night", "url": "https://b.example/", "secret": ""})
    row.refresh_from_db()
    assert (row.url, row.secret) == ("https://b.example/", "SECRET2")
    assert "SECRET" not in str(LogEntry.objects.values_list("change_message", flat=True))


def test_only_a_superuser_lets_a_channel_reach_private_addresses(
    browser: Callable[..., Client],
) -> None:
    names = ("add", "change", "view")
    editor = browser(*(f"ems_monitoring.{name}_alarmchannel" for name in names))
    data = {"name": "ops", "kind": "webhook", "enabled": "on", "recipients": "", "secret": ""}
    inside = {**data, "url": "http://10.0.0.1/", "allow_private": "on"}
    add = reverse("admin:ems_monitoring_alarmchannel_add")
    assert editor.post(add, inside).status_code == 302
    row = AlarmChannel.objects.get()
    change = reverse("admin:ems_monitoring_alarmchannel_change", args=[row.pk])
    assert editor.post(change, {**inside, "name": "night"}).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.allow_private) == ("night", False)
    root = Client()
    root.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    assert root.post(change, inside).status_code == 302
    row.refresh_from_db()
    assert row.allow_private
    # Of a channel that may already, another address would be as good as the permission.
    assert editor.get(change).status_code == 200
    assert editor.post(change, {**inside, "url": "http://10.0.0.2/"}).status_code == 403
    row.refresh_from_db()
    assert row.url == "http://10.0.0.1/"


def test_the_last_channel_of_a_rule_is_not_deleted(browser: Callable[..., Client]) -> None:
    """Without one, the rule would tell all channels."""
    names = ("delete", "view")
    client = browser(*(f"ems_monitoring.{name}_alarmchannel" for name in names))
    one, two, free = (channel("http://127.0.0.1:1/", name=name) for name in ("a", "b", "c"))
    AlarmRule.objects.create(name="quiet-rule", metric="lag").channels.set([one, two])
    rows = reverse("admin:ems_monitoring_alarmchannel_changelist")
    every = {"action": "delete_selected", "post": "yes", "_selected_action": [one.pk, two.pk]}
    assert "quiet-rule" in client.post(rows, every).text
    assert AlarmChannel.objects.count() == 3
    for row in (one, free):
        delete = reverse("admin:ems_monitoring_alarmchannel_delete", args=[row.pk])
        assert client.post(delete, {"post": "yes"}).status_code == 302
    delete = reverse("admin:ems_monitoring_alarmchannel_delete", args=[two.pk])
    assert "quiet-rule" in client.post(delete, {"post": "yes"}).text
    assert AlarmChannel.objects.get() == two


def test_a_default_rule_is_changed_by_a_form_that_is_filled_in(
    browser: Callable[..., Client],
) -> None:
    names = ("add", "change", "view", "delete")
    client = browser(*VIEW, *(f"ems_monitoring.{name}_alarmrule" for name in names))
    add = f"{reverse('admin:ems_monitoring_alarmrule_add')}?name=lag_age&amp;metric=lag_age"
    assert add in client.get(url()).text
    form = client.get(add.replace("&amp;", "&")).context["adminform"].form
    assert (form.initial["name"], form.initial["metric"]) == ("lag_age", "lag_age")
    data = {"name": "lag_age", "metric": "lag_age", "enabled": "unknown", "operator": ">"}
    answer = client.post(add.split("?")[0], {**data, "threshold": "60"})
    assert answer.status_code == 302
    assert find_rule("lag_age", "default").threshold == 60
    assert find_rule("lag_age", "default").for_time == timedelta(minutes=5)
    wrong = client.post(add.split("?")[0], {**data, "name": "disk"})
    assert "has the metric" in wrong.text
    row = AlarmRule.objects.get()
    delete = reverse("admin:ems_monitoring_alarmrule_delete", args=[row.pk])
    client.post(delete, {"post": "yes"})
    assert find_rule("lag_age", "default").threshold == 600


def test_the_channels_of_a_rule_that_is_there_are_changed_by_its_form(
    browser: Callable[..., Client],
) -> None:
    names = ("change", "view")
    client = browser(*(f"ems_monitoring.{name}_alarmrule" for name in names))
    where = channel("http://127.0.0.1:1/")
    row = AlarmRule.objects.create(name="lag", metric="lag", threshold=5)
    change = reverse("admin:ems_monitoring_alarmrule_change", args=[row.pk])
    data = {"name": "lag", "metric": "lag", "enabled": "unknown", "operator": ">"}
    for threshold, chosen in ((5, [where.pk]), (6, []), (7, [where.pk])):
        sent: dict[str, Any] = {**data, "threshold": threshold, "channels": chosen}
        assert client.post(change, sent).status_code == 302
        row.refresh_from_db()
        found = [one.pk for one in row.channels.all()]
        assert (row.threshold, found) == (threshold, chosen)

"""The page of the audits: its verdict, what is wrong and where, and who may look again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring import java as java_of_host
from monitoring import jobs
from monitoring.models import AuditFinding, AuditPlace, Run
from monitoring.pages import starting
from monitoring.pages.audit import CLOSED_SHOWN, OPEN_SHOWN, AuditPage
from monitoring.pages.base import VIEW
from monitoring.pages.starting import START
from streams.models import Step, UtcNow
from tests.monitoring.test_pages import (  # noqa: F401 - fixtures
    WITHOUT_BANNER,
    user_with,
    viewer,
    world,
)

pytestmark = pytest.mark.django_db

SEE = (VIEW, *AuditPage.permissions)
DAY = timedelta(days=1)
ABOUT = "120 messages of 2 partitions, 3 cursors"


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_looked", [])
    monkeypatch.setattr(java_of_host, "missing", lambda: "")


def reconciled(ago: timedelta = timedelta(hours=3), **values: Any) -> Run:
    at = timezone.now() - ago
    given = {"state": "done", "since": at - 7 * DAY, "until": at, "read": 120, "rows": 0}
    given |= {"seconds": 2.0, "started_at": at, "finished_at": at, "job": "reconcile"}
    return Run.objects.create(**{**given, **values})


def finding(n: int, seen: timedelta = timedelta(0), **values: Any) -> AuditFinding:
    at = timezone.now() - seen
    given = {"source": "reconcile", "kind": "hole", "place": f"orders/0@{n}", "count": n}
    digest = b"%032d" % n
    return AuditFinding.objects.create(
        digest=digest, seen_at=at, found_at=at, **{**given, **values}
    )


def figures(client: Any) -> dict[str, Any]:
    return client.get(AuditPage.url() + "?format=json").json()  # type: ignore[no-any-return]


def test_without_a_run_it_says_what_to_do(user_with):  # noqa: F811
    text = user_with(*SEE).get(AuditPage.url()).text
    assert "Nobody has compared the whole history yet." in text
    assert "python manage.py ems_spark reconcile" in text
    assert "Nothing is wrong." not in text


def test_the_verdict_says_what_was_compared_when_and_over_which_range(user_with):  # noqa: F811
    run = reconciled(about=f"{ABOUT}: nothing is wrong")
    client = user_with(*SEE)
    verdict = figures(client)["verdict"]
    assert (verdict["messages"], verdict["findings"], verdict["about"]) == (120, 0, ABOUT)
    text = client.get(AuditPage.url()).text
    assert "Nothing is wrong." in text
    for at in (run.since, run.until):
        assert at is not None
        assert f"{at:%Y-%m-%d %H:%M}" in text
    assert "The last run" not in text


def test_the_runs_of_another_namespace_are_not_shown(user_with, ems_settings):  # noqa: F811
    reconciled(about=f"{ABOUT}: nothing is wrong")
    client = user_with(*SEE)
    ems_settings(NAMESPACE="blue")
    found = figures(client)
    assert (found["verdict"], found["runs"]) == (None, [])
    reconciled(job="reconcile blue", about=f"{ABOUT}: nothing is wrong")
    found = figures(client)
    assert (found["verdict"]["messages"], len(found["runs"])) == (120, 1)


def test_a_verdict_that_is_old_is_not_the_last_word(user_with):  # noqa: F811
    reconciled(2 * DAY, about=f"{ABOUT}: nothing is wrong")
    client = user_with(*SEE)
    text = client.get(AuditPage.url()).text
    assert "The last run is old." in text
    assert "nothing wrong, but old" in text
    killed = Run.objects.create(
        job="reconcile", state="running", started_at=timezone.now() - 1.5 * DAY
    )
    text = client.get(AuditPage.url()).text
    assert "The last run was killed." in text
    assert ABOUT in text  # what was known before stays
    killed.state, killed.error = "failed", "OutOfMemoryError: Java heap space"
    killed.save()
    assert "OutOfMemoryError: Java heap space" in client.get(AuditPage.url()).text


def test_what_is_open_is_what_the_last_reconcile_has_seen_and_the_audit_of_a_day(
    user_with,  # noqa: F811
):
    run = reconciled(3 * DAY, rows=2, about="2 findings")
    assert run.until is not None
    seen = timezone.now() - run.until
    opened = [finding(1, seen), finding(2, seen - DAY / 24)]
    opened.append(finding(3, DAY / 24, source="audit"))
    closed = [finding(4, seen + DAY), finding(5, 2 * DAY, source="audit")]
    found = figures(user_with(*SEE))
    assert {row["pk"] for row in found["findings"]} == {row.pk for row in opened}
    assert {row["pk"] for row in found["closed"]} == {row.pk for row in closed}
    assert (found["findings_in_all"], found["continuous"]["findings"]) == (3, 1)
    Run.objects.all().delete()  # old ones are: what was found is wrong until another one looks
    assert figures(user_with(*SEE))["findings_in_all"] == 4


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ({"place": "mail on orders/0@7-9"}, "orders/0@7-9"),
        ({"place": "orders/0@7"}, "orders/0@7"),
        ({"place": "orders/0", "detail": "offsets 7 … 9 (3)"}, "orders/0@7-9"),
        ({"place": "mail on orders", "detail": "delivery 4: offsets 7–9"}, ""),
        ({"place": "gone/0@7"}, ""),
    ],
)
def test_a_finding_leads_to_its_messages_its_topic_and_its_group(
    world,  # noqa: F811
    user_with,  # noqa: F811
    values,
    log,
):
    finding(1, **values)
    (row,) = figures(user_with(*SEE))["findings"]
    assert row["log"] == log
    is_gone = values["place"].startswith("gone")
    assert row["topic_pk"] == (None if is_gone else world.mail.topic_id)
    names_group = values["place"].startswith("mail")
    assert row["group_pk"] == (world.mail.pk if names_group else None)
    rights = ("ems.view_message", "ems.view_topic", "ems.view_consumergroup")
    text = user_with(*SEE, *rights).get(AuditPage.url()).text
    if log:
        assert f"search/?q={log.replace('@', '%40')}" in text
    topic = f"/overview/topics/{world.mail.topic_id}/"
    assert (topic in text) is not is_gone
    assert (f"/overview/groups/{world.mail.pk}/" in text) is names_group
    # Who may not see those pages gets no link to them.
    text = user_with(*SEE).get(AuditPage.url()).text
    assert "search/?q=" not in text
    assert topic not in text


def test_the_continuous_audit_says_when_it_looked_and_at_what(user_with):  # noqa: F811
    client = user_with(*SEE)
    assert "It has not run yet." in client.get(AuditPage.url()).text
    Step.objects.update_or_create(name="audit", defaults={"last_run_at": UtcNow()})
    for row in range(3):
        AuditPlace.objects.create(stage="log", row=row)
    AuditPlace.objects.create(stage="groups", row=1)
    found = figures(client)["continuous"]
    assert (found["partitions"], found["cursors"], found["findings"]) == (3, 1, 0)
    assert found["at"]


def test_the_worst_case_is_cut_and_read_by_few_statements(user_with):  # noqa: F811
    reconciled(rows=OPEN_SHOWN + 7)
    for n in range(OPEN_SHOWN + 7):
        finding(n, place=f"mail on orders/0@{n}")
    for n in range(200, 200 + CLOSED_SHOWN + 5):
        finding(n, 5 * DAY)
    client = user_with(*SEE)
    with CaptureQueriesContext(connection) as queries:
        text = client.get(AuditPage.url(), headers=WITHOUT_BANNER).text
    assert len(queries) <= 16
    found = figures(client)
    assert (len(found["findings"]), len(found["closed"])) == (OPEN_SHOWN, CLOSED_SHOWN)
    assert f"All {OPEN_SHOWN + 7} findings" in text
    assert "<script>" not in text.partition("</head>")[2].replace("<script src", "")


def test_to_look_again_needs_its_permission_and_is_logged(user_with, monkeypatch):  # noqa: F811
    started: list[tuple[str, int]] = []
    monkeypatch.setattr(
        jobs, "start", lambda job, using, *, seconds: started.append((job, seconds))
    )
    client = user_with(*SEE)
    assert client.post(AuditPage.url(), {"verb": "reconcile"}).status_code == 403
    assert "Run it now" not in client.get(AuditPage.url()).text
    client = user_with(*SEE, START)
    assert "Run it now" in client.get(AuditPage.url()).text
    assert client.post(AuditPage.url(), {"verb": "archive"}).status_code == 302  # of another page
    assert not started
    assert client.post(AuditPage.url(), {"verb": "reconcile"}).status_code == 302
    assert started == [("reconcile", 12 * 3600)]
    assert "reconcile" in LogEntry.objects.get().object_repr
    Run.objects.create(job="reconcile", state="running", started_at=timezone.now())
    text = client.get(AuditPage.url()).text
    assert "The job is at work since" in text
    assert "Run it now" not in text

"""The page of the Spark runs: figures of a day, failures, and who may start them."""

from __future__ import annotations

import os
import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring import java as java_of_host
from monitoring import jobs
from monitoring.models import AuditFinding, Run, RunState
from monitoring.pages import starting
from monitoring.pages.audit import AuditPage
from monitoring.pages.base import VIEW
from monitoring.pages.pipeline import PipelinePage
from monitoring.pages.starting import START
from tests.monitoring.test_pages import (  # noqa: F401 - fixtures
    WITHOUT_BANNER,
    user_with,
    viewer,
    world,
)
from tests.processes import wait_for

pytestmark = pytest.mark.django_db

SEE = (VIEW, "ems_monitoring.view_run")


@pytest.fixture(autouse=True)
def java(monkeypatch):
    """What this host lacks, as the page sees it: nothing, unless a test says more."""
    lacks = [""]
    monkeypatch.setattr(starting, "_looked", [])
    monkeypatch.setattr(java_of_host, "missing", lambda: lacks[0])
    return lacks


@pytest.fixture
def started(monkeypatch):
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(jobs, "start", lambda job, using, *, seconds: calls.append((job, seconds)))
    return calls


def runs() -> None:
    now = timezone.now()
    for number, (job, state, read, seconds) in enumerate(
        [
            ("traffic", RunState.DONE, 1000, 2.0),
            ("traffic", RunState.DONE, 3000, 2.0),
            ("traffic", RunState.FAILED, None, None),
            ("backlog", RunState.RUNNING, None, None),
        ]
    ):
        Run.objects.create(
            job=job,
            state=state,
            read=read,
            seconds=seconds,
            since=now - timedelta(minutes=12 - number),
            until=now - timedelta(minutes=11 - number),
            error="x" * 3000 + "java.lang.OutOfMemoryError" if state == RunState.FAILED else "",
        )


def test_each_job_says_what_is_done_owed_and_failed(user_with):  # noqa: F811
    runs()
    client = user_with(*SEE)
    found = {
        job["name"]: job for job in client.get(PipelinePage.url() + "?format=json").json()["jobs"]
    }
    traffic = found["traffic"]
    assert (traffic["windows"], traffic["failed"]) == (2, 1)
    assert (traffic["rows_per_second"], traffic["seconds"]) == (1000.0, 2.0)
    assert 590 < traffic["owed"] < 660
    assert (found["backlog"]["running"], found["backlog"]["owed"]) == (1, None)
    assert found["consumption"]["windows"] == 0
    text = client.get(PipelinePage.url()).text
    assert "java.lang.OutOfMemoryError" in text
    assert "x" * 2100 not in text  # the end of the error only


def test_it_reads_little(user_with):  # noqa: F811
    runs()
    client = user_with(*SEE)
    with CaptureQueriesContext(connection) as queries:
        client.get(PipelinePage.url(), headers=WITHOUT_BANNER)
    assert len(queries) <= 13


def test_the_jobs_of_the_night_say_what_they_have_compared_and_lead_to_what_was_found(
    user_with,  # noqa: F811
):
    runs()
    client = user_with(*SEE, "ems_monitoring.view_auditfinding")
    assert "Jobs of the night" not in client.get(PipelinePage.url()).text
    about = "120 messages of 2 partitions, 3 cursors: nothing is wrong"
    run = Run.objects.create(job="reconcile", state="done", about=about, rows=0)
    text = client.get(PipelinePage.url()).text
    assert about in text
    assert ">findings<" not in text
    Run.objects.filter(pk=run.pk).update(rows=1, about="1 findings")
    AuditFinding.objects.create(
        digest=b"0" * 32, source="reconcile", kind="lost delivery", place="mail on orders/0@7"
    )
    text = client.get(PipelinePage.url()).text
    assert ">findings<" in text
    (url,) = re.findall(rf'href="({AuditPage.url()})">reconcile<', text)
    assert "mail on orders/0@7" in client.get(url).text
    long_ago = timezone.now() - timedelta(hours=13)
    Run.objects.create(job="archive", state="running", started_at=long_ago)
    assert ">killed<" in client.get(PipelinePage.url()).text
    # Without that permission there is no link.
    assert f'"{AuditPage.url()}"' not in user_with(*SEE).get(PipelinePage.url()).text


def test_without_java_it_says_what_spark_would_add_and_starts_nothing(user_with, java, started):  # noqa: F811
    java[0] = "Spark jobs need: Java 17 or newer"
    client = user_with(*SEE, START)
    text = client.get(PipelinePage.url()).text
    assert "Everything works without Spark" in text
    assert "Java 17 or newer" in text
    assert "Run now" not in text
    assert "python manage.py ems_spark rollup" in text
    client.post(PipelinePage.url(), {"verb": "run"})
    assert not started
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("verb", "seconds"), [("run", 3600), ("catch_up", 24 * 3600)])
def test_a_run_is_started_and_logged(user_with, started, verb, seconds):  # noqa: F811
    client = user_with(*SEE, START)
    response = client.post(PipelinePage.url() + "?refresh=60", {"verb": verb})
    assert (response.status_code, response.url) == (302, PipelinePage.url() + "?refresh=60")
    assert started == [("rollup", seconds)]
    entry = LogEntry.objects.get()
    assert str(seconds) in entry.object_repr
    client.post(PipelinePage.url(), {"verb": "unknown"})
    assert len(started) == 1


@pytest.mark.parametrize("names", [(), SEE, (*SEE[:1], START), (START,)])
def test_a_start_needs_its_permission_beside_those_of_the_page(user_with, started, names):  # noqa: F811
    client = user_with(*names)
    assert client.post(PipelinePage.url(), {"verb": "run"}).status_code == 403
    for method in ("PUT", "PATCH", "DELETE"):
        assert client.generic(method, PipelinePage.url()).status_code in (403, 405)
    assert Client().post(PipelinePage.url(), {"verb": "run"}).status_code == 302
    assert not started
    assert "Run now" not in client.get(PipelinePage.url()).text


def test_a_start_needs_a_csrf_token(user_with, started):  # noqa: F811
    client = user_with(*SEE, START)
    client.handler.enforce_csrf_checks = True
    assert client.post(PipelinePage.url(), {"verb": "run"}).status_code == 403
    assert not started


@pytest.mark.exhaustive
def test_the_process_of_a_run_outlives_the_request():
    """The report needs no Spark: what is started is the command, in a session of its own."""
    pid = jobs.start("report", "default", seconds=60)
    assert os.getsid(pid) == pid != os.getsid(0)
    wait_for(lambda: not is_there(pid), "the end of the process", 60)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_resident_service_is_shown_as_it_is(user_with):  # noqa: F811
    runs()
    client = user_with(*SEE)
    assert "ems_spark serve" not in client.get(PipelinePage.url()).text
    row = Run.objects.create(job="serve", state=RunState.RUNNING, until=timezone.now())
    text = client.get(PipelinePage.url()).text
    assert "ems_spark serve, last look" in text
    assert "at work" in text
    row.error = "rollup: OSError: the disk is full"
    row.save()
    text = client.get(PipelinePage.url()).text
    assert "failing" in text
    assert "the disk is full" in text
    Run.objects.filter(state=RunState.RUNNING).exclude(pk=row.pk).delete()
    row.until = timezone.now() - timedelta(minutes=20)
    row.save()
    assert "silent" in client.get(PipelinePage.url()).text

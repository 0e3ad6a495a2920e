"""The night of Celery beat alone: what is due is done, by one process, and Java starts for nothing
else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F

from monitoring.models import Run
from sparkjobs.config import Config
from sparkjobs.lock import NIGHTS, SERVE, alone
from streams.models import Message, Partition, Topic, UtcNow
from tests.processes import ROOT

pytestmark = [pytest.mark.django_db(transaction=True)]

NIGHT = datetime(2026, 3, 5, 3, tzinfo=UTC)


def to_archive() -> None:
    """Create a topic of which yesterday is to be archived."""
    topic = Topic.objects.create(name="orders", archive=True)
    topic.partitions.update(next_offset=1)
    Message.objects.create(
        partition=topic.partitions.get(),
        offset=0,
        body=b"",
        body_type="bytes",
        size=0,
        sequenced_at=NIGHT - timedelta(days=1),
    )


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is night, the first roll-up has ended, and a topic is to be archived."""
    from sparkjobs.resident import due

    monkeypatch.setattr(due, "now", lambda connection: NIGHT)
    Run.objects.create(job="backlog", state="done")
    to_archive()


@pytest.fixture
def blue(ems_settings: Any, night: None, config: Any) -> Any:
    """Work in a namespace, whose topic is to be archived as well; return its configuration."""
    ems_settings(NAMESPACE="blue")
    to_archive()
    with Path(config.path).open("a") as file:
        file.write("namespace=blue\n")
    return Config.load(config.path)


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the job would do."""
    from sparkjobs.jobs import nightly

    done: list[str] = []
    for name in ("archive", "reconcile"):
        monkeypatch.setattr(nightly, f"_{name}", lambda config, name=name: done.append(name))
    return done


def nightly(config: Any) -> int:
    from sparkjobs.__main__ import main

    return main(["--config", config.path, "nightly"])


def test_it_does_what_is_due(config: Any, night: None, works: list[str]) -> None:
    assert nightly(config) == 0
    assert works == ["archive", "reconcile"]
    Partition.objects.update(archived_offset=1)
    Run.objects.create(job="reconcile", state="failed", started_at=NIGHT - timedelta(hours=1))
    assert nightly(config) == 0
    assert works == ["archive", "reconcile"]  # once a night


def test_with_nothing_due_it_starts_no_java_and_does_not_import_pyspark(config: Any) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "sparkjobs", "--config", config.path]
    done = subprocess.run(
        [*words, "nightly"],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "pyspark" not in done.stderr


@pytest.mark.usefixtures("night")
def test_it_leaves_the_night_to_a_service_and_to_another_one(
    config: Any, works: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in ((NIGHTS, "ems_spark serve is at work"), ("nightly", "another one")):
        with alone(config, name):
            assert nightly(config) == 0
        assert said in capsys.readouterr().out
    assert works == []


def test_a_service_of_another_namespace_leaves_this_one_its_night(
    blue: Any, works: list[str]
) -> None:
    everybody = replace(blue, namespace="")
    with alone(everybody, SERVE), alone(everybody, everybody.own(NIGHTS)):
        assert nightly(blue) == 0
    assert works == ["archive", "reconcile"]


def test_a_reconcile_of_another_namespace_is_none_of_this_one(blue: Any, works: list[str]) -> None:
    Partition._base_manager.update(archived_offset=1)
    Run.objects.create(job="reconcile", state="done", started_at=NIGHT)
    assert nightly(blue) == 0
    assert works == ["reconcile"]
    Run.objects.create(job="reconcile blue", state="failed", started_at=NIGHT)
    assert nightly(blue) == 0
    assert works == ["reconcile"]  # once a night


@pytest.mark.usefixtures("night")
def test_one_that_fails_does_not_keep_the_other_from_running(
    config: Any, works: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from sparkjobs.jobs import nightly as job

    def fail(config: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(job, "_archive", fail)
    assert nightly(config) == 1
    assert works == ["reconcile"]
    assert "the disk is full" in capsys.readouterr().err


@pytest.mark.usefixtures("night")
def test_what_another_run_has_done_meanwhile_is_not_done_twice(config: Any) -> None:
    """Between the look and the lock; no Spark is needed to see that."""
    from functools import partial

    from sparkjobs.jobs.archive import archive
    from sparkjobs.jobs.reconcile import check
    from sparkjobs.resident.due import is_archive_due, is_reconcile_due

    Partition.objects.update(archived_offset=1)
    Run.objects.create(job="reconcile", state="done", started_at=NIGHT)
    nobody: Any = None
    assert archive(nobody, config, due=partial(is_archive_due, config)) == []
    assert check(nobody, config, pytest.fail, partial(is_reconcile_due, config)) == 0
    assert Run.objects.filter(job__in=("archive", "reconcile")).count() == 1


@pytest.mark.usefixtures("night")
def test_the_service_leaves_a_run_that_is_at_work_alone(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import serve

    nobody: Any = None
    monkeypatch.setattr(serve, "_large", lambda resident, name: None)
    with alone(config, "archive"), alone(config, "reconcile"):
        serve.archive_days(config, nobody)
        serve.reconcile_all(config, nobody)
    assert not Run.objects.filter(job__in=("archive", "reconcile")).exists()


# -- with Spark ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.usefixtures("clean_registry")
def test_beat_alone_archives_a_topic_and_reconciles(
    spark: Any, config: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """All is real but the time of the day: both are due."""
    from sparkjobs.jobs import nightly as job
    from tests.spark import traffic_of_a_day as day

    day.make(messages=20, topics=("orders",))
    Topic.objects.filter(name="orders").update(archive=True)
    Message.objects.update(sequenced_at=UtcNow(-timedelta(days=2)))
    monkeypatch.setattr(job, "is_archive_due", lambda config, connection: True)
    monkeypatch.setattr(job, "is_reconcile_due", lambda config, connection: True)
    assert nightly(config) == 0, capsys.readouterr()
    log = Partition.objects.filter(topic__name="orders")
    assert not log.exclude(archived_offset=F("next_offset")).exists()
    states = dict(Run.objects.values_list("job", "state"))
    assert states == {"archive": "done", "reconcile": "done"}
    run = Run.objects.get(job="reconcile")
    assert run.read == sum(one.next_offset for one in log)
    oldest = Message.objects.order_by("sequenced_at").first()
    assert oldest is not None
    assert run.since == oldest.sequenced_at

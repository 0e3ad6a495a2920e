"""Whether there is anything to roll up is seen by two statements, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import GroupSample, OpenDelivery, Position, Run
from sparkjobs import database
from sparkjobs.instants import now
from sparkjobs.rollup.owed import JOBS, note_nothing, owed
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Topic,
)
from tests.processes import ROOT
from tests.spark import traffic_of_a_day as day

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def settled(connection: Any) -> Any:
    """All that has happened is rolled up."""
    day.make(messages=10, topics=("orders",))
    for partition in Partition.objects.all():
        Position.objects.create(
            partition=partition, open_offset=0, next_offset=partition.next_offset
        )
    at = timezone.now()
    for job in JOBS:
        Run.objects.create(job=job, state="done", until=at, resume_at=at, seconds=1.0)
    assert owed(connection) is None
    return connection


def group() -> ConsumerGroup:
    found = ConsumerGroup.objects.order_by("pk").first()
    assert found
    return found


def new_messages() -> None:
    Partition.objects.update(next_offset=13)


def open_delivery() -> None:
    partition = Partition.objects.get()
    day.add_delivery(group(), partition, (0, 0), timezone.now() - 5 * MINUTE, took=None)


def finished_since() -> None:
    """It was claimed long before, and is not open any more."""
    claimed = timezone.now() - 5 * MINUTE
    day.add_delivery(group(), Partition.objects.get(), (0, 0), claimed, took=6 * MINUTE)


def committed_late() -> None:
    """The last run has seen it open; its end is before that run."""
    claimed = timezone.now() - 5 * MINUTE
    late = day.add_delivery(group(), Partition.objects.get(), (0, 0), claimed, took=MINUTE)
    OpenDelivery.objects.create(delivery_id=late.pk)


def died_since() -> None:
    message = Message.objects.order_by("pk").first()
    day.add_letter(group(), message, timezone.now() + MINUTE)


def consumption_is_ahead_of_the_backlog() -> None:
    Run.objects.filter(job="backlog").update(until=timezone.now() - MINUTE)


@pytest.mark.parametrize(
    "happen",
    [
        new_messages,
        open_delivery,
        finished_since,
        committed_late,
        died_since,
        consumption_is_ahead_of_the_backlog,
    ],
)
def test_whatever_happens_is_owed(settled: Any, happen: Any) -> None:
    happen()
    found = owed(settled)
    assert found is not None
    assert found.messages == (3 if happen is new_messages else 0)


def test_a_backlog_that_nobody_works_on_starts_no_spark(settled: Any) -> None:
    """Its messages are counted; how many wait is in the samples of EMS.

    A range that was given back is open, and nobody holds it.
    """
    Cursor.objects.filter(group=group()).update(next_offset=3)
    RetryMessage.objects.create(
        group=group(), partition=Partition.objects.get(), offset=1, due_at=timezone.now()
    )
    open_delivery()
    Delivery.objects.filter(state="START").update(token="")
    assert owed(settled) is None


def test_deliveries_that_are_not_counted_make_a_window_large(settled: Any) -> None:
    """A group has caught up with a long log, in which nothing is new."""
    open_delivery()
    before = owed(settled)
    assert before
    partition, at = Partition.objects.get(), timezone.now()
    many = [day.delivery(group(), partition, (0, 0), at, took=MINUTE) for _ in range(30)]
    Delivery.objects.bulk_create(many)
    found = owed(settled)
    assert found
    assert found.messages == 0
    assert found.rows - before.rows >= 30  # a server may leave out ids
    assert before.rows < Delivery.objects.count() - 30
    Run.objects.filter(job="consumption").update(resume_at=None)
    found = owed(settled)
    assert found
    assert found.rows >= Delivery.objects.count()


def test_what_was_never_rolled_up_is_owed(connection: Any) -> None:
    assert owed(connection) is not None  # also where there is nothing: the pages wait for a run
    Topic.objects.create(name="orders")
    assert owed(connection) is not None


def test_a_quiet_time_is_one_row_of_each_job(settled: Any) -> None:
    before = {run.job: run.until for run in Run.objects.all()}
    for _ in range(3):
        note_nothing(settled, now(settled))
        assert owed(settled) is None
    rows = Run.objects.filter(seconds=0)
    assert sorted(rows.values_list("job", flat=True)) == sorted(JOBS)
    for row in rows:
        assert row.until
        assert before[row.job] < row.until == row.finished_at
        if row.job == "consumption":
            assert row.resume_at
            assert MINUTE <= row.until - row.resume_at < 2 * MINUTE
        else:
            assert row.resume_at is None
    # What happens now is after them, and so is the next window.
    finished_since()
    assert owed(settled) is not None
    rows.update(started_at=timezone.now() - timedelta(days=2))
    note_nothing(settled, now(settled))
    assert Run.objects.filter(seconds=0).count() == 6  # old rows are deleted: no row is for ever


def test_what_ends_after_the_look_is_after_the_quiet_time(settled: Any) -> None:
    at = now(settled)
    assert owed(settled) is None
    partition = Partition.objects.get()
    day.add_delivery(group(), partition, (0, 0), timezone.now() - MINUTE, took=MINUTE)
    note_nothing(settled, at)
    assert owed(settled) is not None


def test_statements_are_two(settled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(connection: Any, statement: str, values: Any = ()) -> Any:
        asked.append(statement)
        return database.fetch(connection, statement, values)

    monkeypatch.setattr("sparkjobs.rollup.owed.fetch", fetch)
    assert owed(settled) is None
    assert len(asked) == 2


def test_a_roll_up_with_nothing_to_do_starts_no_java(settled: Any, config: Any) -> None:
    """Nor is pyspark imported, which costs more than the look."""
    words = [sys.executable, "-X", "importtime", "-m", "sparkjobs", "--config", config.path]
    done = subprocess.run(
        [*words, "rollup"],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "rollup: nothing to do\n"), done.stderr
    assert "pyspark" not in done.stderr
    assert Run.objects.filter(seconds=0).count() == 3
    assert not DeadMessage.objects.filter(redriven_at__isnull=False).exists()
    assert not Delivery.objects.filter(state="START").exists()


def test_the_fallback_does_nothing_while_a_service_is_at_work(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs.__main__ import main
    from sparkjobs.lock import SERVE, alone, is_held

    assert not is_held(config, SERVE)
    with alone(config, SERVE):
        assert is_held(config, SERVE)
        assert main(["--config", config.path, "rollup", "--fallback"]) == 0
    assert "ems_spark serve is at work" in capsys.readouterr().out
    assert not Run.objects.exists()
    assert not is_held(config, SERVE)


def test_the_fallback_leaves_a_longer_one_at_work(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Celery beat asks every five minutes, and what is at work is not an error."""
    from sparkjobs.__main__ import main
    from sparkjobs.lock import alone
    from sparkjobs.rollup.windows import ROLL_UP

    with alone(config, ROLL_UP):
        assert main(["--config", config.path, "rollup", "--fallback"]) == 0
        assert capsys.readouterr().out == "rollup: another one is at work\n"
        assert main(["--config", config.path, "rollup"]) == 1
    assert not Run.objects.exists()


def test_a_look_at_backlogs_says_which_samples_would_be_added_up(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs.__main__ import main

    at = timezone.now().replace(hour=3, minute=0, second=0, microsecond=0) - timedelta(days=2)
    sampled = {"minute": at, "taken_at": at, "grain": 360, "group_id": 1}
    GroupSample.objects.create(**sampled, open=0, waiting=0, dead=0, consumers=0)
    assert main(["--config", config.path, "backlog", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"backlog: the samples since {at}\n"

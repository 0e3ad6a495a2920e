"""The resident service: what is due is done, and no failure ends it. Few tests need a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import Run
from sparkjobs.lock import NIGHTS, SERVE, is_held
from tests.processes import ROOT, wait_for

pytestmark = [pytest.mark.django_db(transaction=True)]

# A service whose duty says so, fails when a file says it, or stays for a minute.
SERVICE = """\
import sys, time
from pathlib import Path
from functools import partial
from sparkjobs.config import Config
from sparkjobs.resident import duty, keeper, service, stopping
from sparkjobs.resident.spark import Resident
keeper.STANDBY_SECONDS, keeper.PAUSE_SECONDS, duty.FIRST_PAUSE = 0.1, 0.1, 0.2
stopping.DRAIN_SECONDS = keeper.DRAIN_SECONDS = 2
configs, folder = Config.load_all(sys.argv[1]), Path(sys.argv[2])
def work():
    print("working", flush=True)
    if (folder / "fail").exists():
        raise RuntimeError("the disk is full")
    while (folder / "stay").exists():
        time.sleep(0.05)
def duties():
    second = partial(print, "second", flush=True)
    return [
        duty.Duty("first", work, lambda connection: True, 0.2, 600),
        duty.Duty("second", second, lambda connection: True, 0.2, 600),
    ]
due = {config: duties() for config in configs}
service.ResidentService(due, Resident(), partial(print, flush=True)).run()
"""
Serve = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def serve(option_file: Path, tmp_path: Path) -> Iterator[Serve]:
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        with (tmp_path / f"serve-{len(started)}.log").open("w") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-u", "-c", SERVICE, str(option_file), str(tmp_path)],
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    text=True,
                )
            )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def said(folder: Path, number: int, text: str) -> int:
    return (folder / f"serve-{number}.log").read_text().count(text)


def test_it_works_until_it_is_asked_to_end_between_two_duties(
    serve: Serve, tmp_path: Path, config: Any
) -> None:
    process = serve()
    wait_for(lambda: said(tmp_path, 0, "second") >= 2)
    run = Run.objects.get(job="serve")
    assert (run.state, run.error) == ("running", "")
    assert is_held(config, SERVE)
    assert is_held(config, NIGHTS)
    (tmp_path / "stay").touch()
    seen = said(tmp_path, 0, "working")
    wait_for(lambda: said(tmp_path, 0, "working") > seen)
    process.terminate()
    (tmp_path / "stay").unlink()
    assert process.wait(30) == 0
    run.refresh_from_db()
    assert (run.state, said(tmp_path, 0, "serve: ended")) == ("done", 1)
    assert not is_held(config, SERVE)
    assert not is_held(config, NIGHTS)


def test_a_duty_that_does_not_end_does_not_hold_up_the_stop(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "stay").touch()
    process = serve()
    wait_for(lambda: said(tmp_path, 0, "working"))
    process.terminate()
    assert process.wait(30) == -signal.SIGALRM


def test_a_duty_that_fails_is_in_its_row_and_stops_neither_the_other_nor_itself(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "fail").touch()
    serve()
    wait_for(lambda: said(tmp_path, 0, "first: RuntimeError: the disk is full") >= 2)
    wait_for(lambda: said(tmp_path, 0, "second") >= 2)
    assert Run.objects.get(job="serve").error == "first: RuntimeError: the disk is full"
    (tmp_path / "fail").unlink()
    wait_for(lambda: Run.objects.get(job="serve").error == "")


def test_of_two_one_works_and_the_other_takes_over(serve: Serve, tmp_path: Path) -> None:
    first = serve()
    wait_for(lambda: said(tmp_path, 0, "second"))
    serve()
    wait_for(lambda: said(tmp_path, 1, "another one is at work; this one waits"))
    first.kill()
    wait_for(lambda: said(tmp_path, 1, "second"))
    states = list(Run.objects.filter(job="serve").order_by("pk").values_list("state", flat=True))
    assert states == ["failed", "running"]
    assert said(tmp_path, 1, "waits to take over") == 1  # said once, however long it waits


@pytest.mark.mysql
def test_a_lost_connection_does_not_end_it(serve: Serve, tmp_path: Path, connection: Any) -> None:
    from sparkjobs.database import execute, fetch

    process = serve()
    wait_for(lambda: said(tmp_path, 0, "second"))
    own = fetch(connection, "SELECT CONNECTION_ID(), DATABASE()")[0]
    for (id_,) in fetch(
        connection,
        "SELECT `id` FROM `information_schema`.`processlist` WHERE `db` = %s AND `id` <> %s",
        [own[1], own[0]],
    ):
        execute(connection, "KILL %s", [id_])
    wait_for(lambda: said(tmp_path, 0, "; again in"))
    wait_for(lambda: said(tmp_path, 0, "serve: at work") == 2)
    assert process.poll() is None
    wait_for(lambda: Run.objects.filter(job="serve", state="running").count() == 1)


@pytest.mark.mysql
def test_a_lock_whose_host_has_vanished_is_free_after_a_while(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a connection and says nothing on it: the server ends that."""
    from sparkjobs import lock

    monkeypatch.setattr(lock, "WAIT_SECONDS", 1)
    with pytest.raises(Exception, match=r"2006|2013|4031|1927"), lock.alone(config, "x") as held:
        wait_for(lambda: not is_held(config, "x"))
        held()


@pytest.mark.mysql
def test_a_lock_is_kept_however_long_nothing_is_asked_of_it(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs import lock

    monkeypatch.setattr(lock, "WAIT_SECONDS", 2)
    monkeypatch.setattr(lock, "PING_SECONDS", 0.2)
    begin = timezone.now()
    with lock.alone(config, "x") as held:
        # Beyond the time after which the server ends a silent connection.
        wait_for(lambda: timezone.now() - begin > timedelta(seconds=4))
        assert is_held(config, "x")
        held()


# -- what is due ---------------------------------------------------------------------------------


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("hour", "started", "rolled_up", "due"),
    [
        (1, None, "done", False),
        (3, None, "done", True),
        (3, None, "failed", True),
        (3, None, "running", False),
        (3, None, "", False),
        (3, timedelta(hours=1), "done", False),
        (3, timedelta(hours=20), "done", True),
        (7, None, "done", False),
    ],
)
def test_to_reconcile_is_due_once_a_night_and_after_the_first_roll_up(
    config: Any,
    connection: Any,
    monkeypatch: pytest.MonkeyPatch,
    hour: int,
    started: Any,
    rolled_up: str,
    due: bool,
) -> None:
    from sparkjobs.resident import due as job

    moment = datetime(2026, 3, 5, hour, tzinfo=UTC)
    monkeypatch.setattr(job, "now", lambda connection: moment)
    if started is not None:
        Run.objects.create(job="reconcile", state="failed", started_at=moment - started)
    if rolled_up:
        Run.objects.create(job="backlog", state=rolled_up)
    assert job.is_reconcile_due(config, connection) is due


def test_the_archive_is_due_while_a_message_of_a_closed_day_is_not_archived(
    config: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from sparkjobs.resident import due as job
    from streams.models import Message, Partition, Topic

    moment = [datetime(2026, 3, 5, 0, 14, tzinfo=UTC)]
    monkeypatch.setattr(job, "now", lambda connection: moment[0])
    topic = Topic.objects.create(name="orders")
    topic.partitions.update(next_offset=9, archived_offset=2, first_offset=4)
    log = topic.partitions.get()
    for offset in (3, 6, 9):  # one below what is purged, one beyond the end
        Message.objects.create(
            partition=log,
            offset=offset,
            body=b"",
            body_type="bytes",
            size=0,
            sequenced_at=moment[0] - timedelta(hours=1),
        )

    def due() -> bool:
        return job.is_archive_due(config, connection)

    Topic.objects.update(archive=True)
    assert not due()  # the day may not be closed
    moment[0] += timedelta(minutes=2)
    assert due()
    assert not job.is_archive_due(replace(config, archive=""), connection)
    Topic.objects.update(archive=False)
    assert not due()
    Topic.objects.update(archive=True)
    Run.objects.create(job="archive", state="done", until=moment[0])
    assert due()  # whatever has run: another namespace's run has not archived it
    Partition.objects.update(archived_offset=7)
    assert not due()
    Partition.objects.update(archived_offset=0, first_offset=0)
    assert due()
    Message.objects.update(sequenced_at=moment[0])  # of today
    assert not due()


# -- with Spark ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_it_rolls_up_outlives_its_jvm_and_ends_with_it(option_file: Path, tmp_path: Path) -> None:
    """A JVM of its own, which is killed: the next roll-up starts another one."""
    from tests.spark import traffic_of_a_day as day
    from tests.spark.test_rollups import traffic_rows

    code = "import sys; from sparkjobs.jobs import serve; serve.EVERY = 1.0; "
    code += "from sparkjobs.resident import due; "
    code += "due.RECONCILE_BEFORE = due.RECONCILE_AFTER; "  # also at night
    code += "from sparkjobs.resident import duty; duty.FIRST_PAUSE = 1.0; "
    code += "from sparkjobs.__main__ import main; sys.exit(main(sys.argv[1:]))"
    day.make(messages=20, topics=("orders",))
    log = tmp_path / "serve.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, "--config", str(option_file), "serve"],
            cwd=ROOT,
            env={**os.environ, "EMS_SPARK_MASTER": "local[2]"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(lambda: traffic_rows() == day.traffic_by_hand(), log.read_text, timeout=600)
        wait_for(lambda: Run.objects.filter(job="backlog", state="done").exists(), timeout=600)
        (jvm,) = children(process.pid)
        os.kill(jvm, signal.SIGKILL)
        day.make(messages=20, topics=("flights",))
        wait_for(lambda: traffic_rows() == day.traffic_by_hand(), log.read_text, timeout=600)
        (jvm,) = children(process.pid)
        process.terminate()
        assert process.wait(180) in (0, -signal.SIGALRM), log.read_text()
        wait_for(lambda: not Path(f"/proc/{jvm}").exists())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@pytest.mark.any_database
def test_little_work_has_a_jvm_of_its_own_and_much_work_is_not_followed_by_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sparkjobs import jvm
    from sparkjobs.resident import spark

    started: list[bool] = []

    def session(name: str, *, brief: bool) -> object:
        started.append(brief)
        return object()

    monkeypatch.setattr(spark, "session", session)
    monkeypatch.setattr(jvm, "end", lambda session: None)
    seconds = [0.0]
    resident = spark.Resident(lambda: seconds[0])
    little = resident.session(brief=True)
    assert resident.session(brief=True) is little
    much = resident.session()
    assert started == [True, False]
    seconds[0] = spark.LARGE_SECONDS
    assert resident.session(brief=True) is much  # it was needed within an hour
    seconds[0] += 1
    assert resident.session(brief=True) is not much
    assert started == [True, False, True]

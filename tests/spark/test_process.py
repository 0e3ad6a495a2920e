"""Jobs as the processes they are: one at a time, ended in time, killed and caught up with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from monitoring import jobs
from monitoring.models import Position, Run, Traffic
from tests.processes import wait_for
from tests.spark import traffic_of_a_day as day
from tests.spark.test_rollups import Roll, traffic_rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

ROOT = Path(__file__).resolve().parent.parent.parent
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(option_file: Path) -> Iterator[Start]:
    """``start("traffic")`` is ``python -m sparkjobs traffic`` on this run's database."""
    started = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "sparkjobs", "--config", str(option_file), *words],
            cwd=ROOT,
            env={**os.environ, "EMS_SPARK_MASTER": "local[2]"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """With -9, and the JVM with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# A session takes five seconds to start, and a minute where much else is at work.
@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_a_killed_job_leaves_nothing_and_the_next_catches_up(start: Start, roll: Roll) -> None:
    day.make(messages=20, topics=("orders",))
    process = start("traffic")
    # It has begun its window, and reads.
    wait_for(lambda: Run.objects.filter(job="traffic", state="running").exists(), timeout=180)
    kill(process)
    assert not Position.objects.exists()
    assert not Traffic.objects.exists()
    roll("traffic")
    assert traffic_rows() == day.traffic_by_hand()
    assert list(Run.objects.order_by("pk").values_list("state", flat=True)) == ["failed", "done"]


def test_only_one_of_the_roll_ups_is_at_work(start: Start, config: Any) -> None:
    from sparkjobs.lock import alone
    from sparkjobs.rollup.windows import ROLL_UP

    with alone(config, ROLL_UP):
        for job in ("rollup", "traffic"):
            process = start(job)
            output = process.communicate()[0]
            assert process.returncode == 1
            assert "another run of rollup is at work" in output
    assert not Run.objects.exists()


def test_a_lock_is_free_as_soon_as_its_run_has_ended(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server ends a session, and frees its locks, some time after it was closed: here, later."""
    from sparkjobs import lock
    from sparkjobs.database import connected

    with ExitStack() as sessions:
        later = lambda config: nullcontext(sessions.enter_context(connected(config)))  # noqa: E731
        monkeypatch.setattr(lock, "connected", later)
        for _run in range(2):
            with lock.alone(config, "archive"):
                pass


def test_a_job_that_takes_too_long_ends_itself() -> None:
    lines: list[str] = []
    status = jobs.run("rollup", [], "default", seconds=1, say=lines.append)
    assert status == -signal.SIGALRM
    assert lines[-1] == "rollup took longer than 1 s and was ended."
    assert not Run.objects.filter(state="done").exists()


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(start: Start) -> None:
    day.make(messages=20, topics=("orders",))
    assert "20 messages of 1 partitions" in start("traffic", "--dry-run").communicate()[0]
    assert not Run.objects.exists()
    assert json.dumps(list(Traffic.objects.values())) == "[]"

"""Children that are forked are as those that are started: their ends, output and settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests import forkserver
from tests.processes import Child, Spawn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]

WAITING = "import sys; print('here', flush=True); sys.stdin.read(); import time; time.sleep(60)"


@pytest.fixture
def fork(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Child]:
    """Fork a child, also if it is the first one of this run."""

    def run(code: str, *arguments: object) -> Child:
        for _ in range(2):
            child = spawn(code, *arguments)
            if isinstance(child.process, forkserver.Forked):
                return child
            child.close()
        child = spawn(code, *arguments)
        assert isinstance(child.process, forkserver.Forked)
        return child

    return run


def test_its_exit_status_and_what_it_prints_arrive(fork: Callable[..., Child]) -> None:
    child = fork("import sys; print(sys.argv[1:]); sys.exit(3)", "a", 1)
    assert child.wait() == 3
    assert child.text() == "['a', '1']\n"
    assert child.process.poll() == 3


def test_an_error_is_printed_and_ends_it_with_one(fork: Callable[..., Child]) -> None:
    child = fork("1 / 0")
    assert child.wait() == 1
    assert "ZeroDivisionError" in child.text()


def test_it_ends_as_an_interpreter_does(fork: Callable[..., Child]) -> None:
    child = fork(
        "import atexit, threading, time\n"
        "atexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()"
    )
    assert child.succeed() == "thread\nexit\n"


def test_it_can_be_killed_and_has_a_session_of_its_own(fork: Callable[..., Child]) -> None:
    child, other = fork(WAITING), fork(WAITING)
    other.expect("here")
    child.expect("here")
    assert os.getsid(child.pid) == child.pid
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert other.process.poll() is None
    other.terminate()
    assert other.wait() == -signal.SIGTERM


def test_one_that_ends_before_the_signal_comes_needs_none(
    fork: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = fork("pass")
    child.wait()
    monkeypatch.setattr(child.process, "poll", lambda: None)  # as before the server has told
    child.terminate()
    child.close()


def test_its_settings_are_those_of_the_test(
    fork: Callable[..., Child], ems_settings: Callable[..., Any]
) -> None:
    code = "from streams.conf import settings; print(settings().POLL_SECONDS)"
    ems_settings(POLL_SECONDS=0.125)
    assert fork(code).succeed() == "0.125\n"
    ems_settings(POLL_SECONDS=0.25)
    assert fork(code).succeed() == "0.25\n"

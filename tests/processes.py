"""Starts real child processes for tests, reads their output, and ends them by their pid."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.forkserver import Forked, for_children

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent

# Long enough for a busy machine; reached only when something is wrong.
PATIENCE_SECONDS = 60


# In the child: end with the test run, even one that is killed outright (Linux only).
END_WITH_PARENT = """\
import sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
"""
SET_UP = "import django\ndjango.setup()\n"
MANAGE = "from django.core.management import execute_from_command_line as run\nrun(sys.argv)\n"


def started(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process with a session of its own, whose output is read from one pipe."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class Child:
    """Reads what a child process prints on both streams as it comes."""

    def __init__(self, process: subprocess.Popen[str] | Forked) -> None:
        self.output: list[str] = []
        self.process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def expect(self, text: str, timeout: float = PATIENCE_SECONDS) -> str:
        """Wait until the child prints a line that contains ``text``; return that line."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"the child never printed {text!r}:\n{self.text()}")
            if text in line:
                return line

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Wait for its end; return its exit status (minus the signal's number if killed)."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the child does not end:\n{self.text()}") from None
        self._reader.join(timeout)
        return status

    def succeed(self, timeout: float = PATIENCE_SECONDS) -> str:
        """Wait for its end, which must be with exit status 0; return all it printed."""
        status = self.wait(timeout)
        assert status == 0, f"exit status {status}:\n{self.text()}"
        return self.text()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM, the request to drain."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, at whatever instruction the child is, and wait for its end."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send_signal(signal.SIGCONT)

    def text(self) -> str:
        return "".join(self.output)

    def close(self) -> None:
        """Kill it and its children, if it still runs, and close its output."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.killpg(self.pid, signal.SIGKILL)  # its own group: see start_new_session
        self.process.wait()
        self._reader.join(PATIENCE_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            self._lines.put(line)
        self._lines.put(None)


class Spawn:
    """Starts children that share the test database; see the fixture ``spawn``.

    With ``forks`` they are forked from a process that has Django set up, which is much cheaper;
    but not a child for which the environment is changed here.
    """

    def __init__(self, env: dict[str, str], *, forks: bool = False) -> None:
        self._env = env
        self._forks = forks
        self._children: list[Child] = []

    def __call__(self, code: str, *arguments: object, env: dict[str, str] | None = None) -> Child:
        """Run Python code with Django set up; ``arguments`` are its ``sys.argv[1:]``."""
        return self._start(SET_UP + code, arguments, env)

    def command(self, name: str, *arguments: object, env: dict[str, str] | None = None) -> Child:
        """Run a management command: ``spawn.command("ems_consume", "--group", "mail")``."""
        return self._start(MANAGE, (name, *arguments), env)

    def close(self) -> None:
        for child in self._children:
            child.close()

    def _start(self, code: str, arguments: tuple[object, ...], env: dict[str, str] | None) -> Child:
        code, words = END_WITH_PARENT + code, list(map(str, arguments))
        # os.environ as it is now: ems_settings may have changed it since the fixture was made.
        whole = {"EMS_TEST_PAGES": "no", **os.environ, **self._env, **(env or {})}
        server = for_children(END_WITH_PARENT, whole) if self._forks and not env else None
        if server:
            self._children.append(Child(server.fork(code, words, whole)))
        else:
            self._children.append(Child(started([sys.executable, "-u", "-c", code, *words], whole)))
        return self._children[-1]


def wait_for(
    condition: Callable[[], T],
    what: str | Callable[[], object] = "",
    timeout: float = PATIENCE_SECONDS,
) -> T:
    """Wait until other threads or processes make ``condition`` true; return its value.

    When it does not come true within ``timeout`` seconds, the error names ``what``, a text or a
    function that gives one.
    """
    give_up_at = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > give_up_at:
            about = what() if callable(what) else what
            raise AssertionError(f"not within {timeout} s: {about or condition}; it is {found!r}")
        time.sleep(0.01)
    return found

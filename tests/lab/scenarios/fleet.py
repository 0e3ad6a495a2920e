"""Starts, kills, freezes and ends the processes of a scenario, by their pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.servers import end_with_parent

ROOT = Path(__file__).resolve().parents[3]


class Process:
    """Runs one child, which can be started again after its death."""

    def __init__(self, name: str, words: list[str], log: Path) -> None:
        self.name = name
        self._words = words
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._popen is not None and self.status is None:
            return
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*end_with_parent(), sys.executable, "-u", *self._words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        return self._popen.poll() if self._popen else None

    def kill(self) -> None:
        self.kills += 1
        self._signal(signal.SIGKILL)
        if self._popen:
            self._popen.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self, patience: float = 20.0) -> int:
        """SIGTERM, and SIGKILL if it does not follow; returns the exit status."""
        self.thaw()
        self._signal(signal.SIGTERM)
        if self._popen is None:
            return 0
        try:
            return self._popen.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def says(self, text: str, patience: float = 30.0) -> bool:
        """Wait until its log contains ``text``."""
        limit = time.monotonic() + patience
        while time.monotonic() < limit:
            if text in self.log():
                return True
            time.sleep(0.05)
        return False

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)


def producer(name: str, folder: Path, *words: str) -> Process:
    return Process(
        name, ["-m", "tests.lab.scenarios.producer", name, *words], folder / f"{name}.log"
    )


def caller(name: str, folder: Path, rate: float) -> Process:
    """One that prepares messages, does its work, and commits or rolls back."""
    words = ["-m", "tests.lab.scenarios.caller", name, str(rate)]
    return Process(name, words, folder / f"{name}.log")


def beat(folder: Path) -> Process:
    words = ["-m", "celery", "-A", "tests.lab.scenarios.steps", "worker", "-B", "--pool", "solo"]
    schedule = ["--schedule", str(folder / "beat"), "--loglevel", "WARNING"]
    return Process("beat", [*words, *schedule], folder / "beat.log")


# The service in the rhythm of a scenario: a minute would be most of it.
SERVE = """\
import sys
from sparkjobs.__main__ import main
from sparkjobs.jobs import serve
from sparkjobs.resident import duty, service
serve.EVERY, duty.FIRST_PAUSE, service.STANDBY_SECONDS = 5.0, 2.0, 1.0
sys.exit(main(sys.argv[1:]))
"""


def service(name: str, folder: Path, options: Path) -> Process:
    words = ["-c", SERVE, "--config", str(options), "serve"]
    return Process(name, words, folder / f"{name}.log")


def web(name: str, folder: Path, port: int) -> Process:
    """The HTTP API in a web server."""
    words = ["-m", "uvicorn", "tests.http.serving:asgi", "--port", str(port), "--lifespan", "off"]
    return Process(name, words, folder / f"{name}.log")


def puller(name: str, folder: Path, port: int) -> Process:
    return Process(
        name, ["-m", "tests.lab.scenarios.puller", name, str(port)], folder / f"{name}.log"
    )


def consumer(name: str, folder: Path, *groups: str) -> Process:
    options = [word for group in groups for word in ("--group", group)]
    words = ["-m", "django", "ems_consume", "--no-supervisor", "--start", "earliest", *options]
    return Process(name, words, folder / f"{name}.log")

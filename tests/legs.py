"""Several runs of pytest beside each other. Standard library only.

Each database is a leg: a pytest of its own; so is the quick part on another Django. Legs share
nothing but the machine: every one has a database server and a Redis to itself, so that even the
counters of a whole server, and an empty Redis, are its own. A leg may be run in parts, one after
the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.packages import url_variable
from tests.servers import running

ROOT = Path(__file__).resolve().parent.parent
LAST_WORD_SECONDS = 10

TESTS_FAILED = 1
NO_TESTS_COLLECTED = 5


@dataclass
class Leg:
    """Runs one pytest, and prints what it prints, with the name of the leg in each line."""

    name: str  # of a part: LEG/PART
    python: Path
    words: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    may_be_empty: bool = False  # arguments may leave nothing for this one
    share: str = ""  # 2/3: of the chosen tests the second third (see tiers.py)

    seconds: float = 0.0
    status: int | None = None
    status_again: int | None = None  # of what failed, run a second time
    report: dict[str, Any] = field(default_factory=dict)
    report_again: dict[str, Any] = field(default_factory=dict)

    def passed(self, *, at_once: bool) -> bool:
        """Tell whether all tests passed; with ``at_once``, a second try does not count."""
        if self.status_again is not None and not at_once:
            return self.status_again == 0
        return self.status == 0 or (self.status == NO_TESTS_COLLECTED and self.may_be_empty)

    def part(self, name: str, folders: list[str], share: str) -> Leg:
        """Return a part of this leg, with the servers of the leg; not to be run beside another."""
        words = [*self.words, *folders]
        return replace(self, name=name, words=words, share=share, may_be_empty=True)

    @property
    def whole(self) -> str:
        """Return the name of the leg of which this is a part."""
        return self.name.partition("/")[0]

    def __str__(self) -> str:
        """Return a row of the summary."""
        result = "passed" if self.passed(at_once=True) else "FAILED"
        if result == "FAILED" and self.status_again == 0:
            result = "AT 2ND"
        counts = f"{'?':>7} {'?':>7} {'?':>8}"
        if self.report:
            tests, failed = len(self.report["seconds"]), len(self.report["failed"])
            counts = f"{tests:7} {failed:7} {self.report['skipped']:8}"
        return f"{self.name:10} {result:7} {counts} {self.seconds:8.0f}"

    def start(self, report: Path, *more: str, terminal: bool = False) -> None:
        """Start pytest; with ``terminal`` it has ours to itself, as --pdb needs it."""
        self._report = report
        self._started_at = time.monotonic()
        cache = f"cache_dir=.pytest_cache/{self.name}"
        told = {
            "PYTHONUNBUFFERED": "1",
            "EMS_TEST_REPORT": str(report),
            "EMS_TEST_SHARE": self.share,
        }
        self._process = subprocess.Popen(
            [self.python, "-m", "pytest", "-o", cache, *more, *self.words],
            cwd=ROOT,
            env={**os.environ, **self.env, **told},
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else subprocess.PIPE,
            stderr=None if terminal else subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._printer = threading.Thread(target=self._print, daemon=True)
        self._printer.start()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Wait for its end and its report; return its exit status."""
        status = self._process.wait()
        # With a limit: a process that a test has left may still hold the pipe.
        self._printer.join(LAST_WORD_SECONDS)
        return status

    def conclude(self) -> None:
        self.status = self.wait()
        self.seconds = time.monotonic() - self._started_at
        self.report = self._read_report()

    def conclude_again(self) -> None:
        self.status_again = self.wait()
        self.report_again = self._read_report()

    def stop(self) -> None:
        """End it by SIGTERM, so that it can remove its databases and children."""
        if not self.has_ended():
            self._process.terminate()
        self.wait()

    def _read_report(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self._report.read_text()) if self._report.exists() else {}
        return read

    def _print(self) -> None:
        with self._process.stdout or contextlib.nullcontext(()) as lines:
            for line in lines:
                print(f"{self.name:10} | {line}", end="", flush=True)


def run_all(
    legs: list[Leg],
    *,
    at_a_time: int,
    again: bool,
    ended: Callable[[Leg], None] = lambda leg: None,
) -> None:
    """Run the legs in their order; with ``again``, run once more, alone, what has failed."""
    with tempfile.TemporaryDirectory(prefix="ems-") as folder:
        waiting, under_way = list(legs), list[Leg]()
        try:
            while waiting or under_way:
                while len(under_way) < at_a_time and (leg := _next(waiting, under_way)):
                    waiting.remove(leg)
                    leg.start(_report(folder, leg), terminal=len(legs) == 1)
                    under_way.append(leg)
                time.sleep(0.1)
                for leg in [leg for leg in under_way if leg.has_ended()]:
                    under_way.remove(leg)
                    leg.conclude()
                    ended(leg)
            for leg in legs:
                if again and leg.status == TESTS_FAILED:
                    _once_more(leg, _report(folder, leg).with_suffix(".again"), under_way)
                    ended(leg)
        except KeyboardInterrupt:  # the terminal has told the children, too
            for leg in under_way:
                leg.wait()
            raise
        except BaseException:
            for leg in under_way:
                leg.stop()
            raise


def _report(folder: str, leg: Leg) -> Path:
    return Path(folder) / f"{leg.name.replace('/', '.')}.json"


def _next(waiting: list[Leg], under_way: list[Leg]) -> Leg | None:
    busy = {leg.whole for leg in under_way}
    return next((leg for leg in waiting if leg.whole not in busy), None)


def _once_more(leg: Leg, report: Path, under_way: list[Leg]) -> None:
    # A shared machine may stall a process for longer than a test waits for it. What fails twice
    # has failed; what does not is named, above and in the summary.
    print(f"\n===== once more on {leg.name}: what failed =====", flush=True)
    under_way.append(leg)
    leg.start(report, "--last-failed", "--last-failed-no-failures=none")
    leg.conclude_again()
    under_way.remove(leg)


@contextlib.contextmanager
def own_redis(legs: list[Leg]) -> Iterator[None]:
    """Give each of these legs its own Redis."""
    with contextlib.ExitStack() as stack:
        for leg in legs:
            servers = stack.enter_context(running(["redis"]))
            leg.env |= {url_variable("redis"): servers["redis"].url}
        yield

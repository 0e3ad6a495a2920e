"""Kills consumer processes again and again, and counts what that costs.

``python -m tests.lab.kills [--kills 200] [--shape only|mates] [--checkout FOLDER]`` needs a server
(EMS_TEST_MYSQL_URL). The handler takes a millisecond, and writes down each call when it begins
and when it has ended. ``only``: one process, which somebody starts again; ``mates``: two under one
parent. There is no pause before a start, since the kills come that often. A call may be
killed between its last note and its return: it counts as completed then, and has to be repeated.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.lab.benchmarks import server
from tests.lab.benchmarks.compare import MIGRATE
from tests.lab.benchmarks.contender import Contender
from tests.lab.benchmarks.server import execute
from tests.processes import ROOT, Child, wait_for

BETWEEN = 300  # calls from one kill to the next
PATIENCE_SECONDS = 120.0  # without a call, after which the rest is lost

CONSUMER = """
import os, sys, time
from django.core.management import execute_from_command_line
from streams import consumer
from streams.process import processes

processes.LONG_LIFE_SECONDS = 0.0
calls = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)

def note(what, message):
    text = f"{what} {os.getpid()} {message.offset} {message.attempt} {time.time()}\\n"
    os.write(calls, text.encode())

@consumer("kills", group="work")
def handle(message):
    note("begun", message)
    time.sleep(0.001)
    note("ended", message)

execute_from_command_line(["manage.py", "ems_consume", "--start", "earliest", *sys.argv[2:]])
"""
PRODUCER = """
import sys
from streams import Outgoing, send_many

count = int(sys.argv[1])
for start in range(0, count, 1000):
    send_many([Outgoing("kills", n) for n in range(start, min(count, start + 1000))])
"""
IN_HAND = (
    "SELECT progress, last_offset FROM ems_topic_group_log"
    " WHERE state = 'START' AND token <> '' AND client_id LIKE '%@{}@%'"
)


class Call(NamedTuple):
    what: str
    pid: int
    offset: int
    attempt: int
    at: float


@dataclass(frozen=True)
class Kill:
    pid: int
    at: float
    in_hand: frozenset[int]


class Killing:
    """A run: it kills, lets the consumers finish, and counts."""

    def __init__(self, contender: Contender, shape: str, kills: int, folder: Path) -> None:
        self._count = kills
        self._calls = folder / "calls"
        self._calls.touch()
        self._plain = contender.connect()
        self._spawn = contender.spawn(STATE_DIR=str(folder / "state"), RETRY_DELAYS=[0.1])
        self._words = ["--processes", "2"] if shape == "mates" else []
        self._child: Child | None = None
        self._kills: list[Kill] = []

    def run(self) -> dict[str, float]:
        messages = BETWEEN * (self._count + 2)
        try:
            self._spawn(PRODUCER, messages).succeed()
            for number in range(self._count):
                self._wait_for_calls(BETWEEN * (number + 1))
                self._kill()
            self._finish(messages)
            assert self._child is not None
            self._child.terminate()
            self._child.wait()
        finally:
            self._spawn.close()
        return self._figures(messages)

    def _wait_for_calls(self, ended: int) -> None:
        def reached() -> bool:
            self._keep_alive()
            return self._calls.read_bytes().count(b"ended") >= ended

        wait_for(reached, f"{ended} calls", PATIENCE_SECONDS)

    def _keep_alive(self) -> None:
        """Start the consumer, again if it has none who does so."""
        if self._child is None or self._child.process.poll() is not None:
            self._child = self._spawn(CONSUMER, self._calls, *self._words)

    def _kill(self) -> None:
        assert self._child is not None
        name = "SELECT DISTINCT client_id FROM ems_client"
        pids = {int(row[0].split("@")[1]) for row in execute(self._plain, name)}
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not alive:
            return
        pid = random.choice(alive)  # noqa: S311
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        at = time.time()
        rows = execute(self._plain, IN_HAND.format(pid))
        held = frozenset(n for first, last in rows for n in range(first, last + 1))
        self._kills.append(Kill(pid, at, held))

    def _finish(self, messages: int) -> None:
        known, since = -1, time.monotonic()
        while time.monotonic() - since < PATIENCE_SECONDS:
            self._keep_alive()
            done = {call.offset for call in self._all() if call.what == "ended"}
            if len(done) == messages:
                return
            if len(done) != known:
                known, since = len(done), time.monotonic()
            time.sleep(0.5)

    def _all(self) -> list[Call]:
        rows = [line.split() for line in self._calls.read_text().splitlines()]
        return [Call(r[0], int(r[1]), int(r[2]), int(r[3]), float(r[4])) for r in rows]

    def _figures(self, messages: int) -> dict[str, float]:
        calls = self._all()
        ended = Counter(call.offset for call in calls if call.what == "ended")
        begun: dict[int, list[Call]] = {}
        for call in calls:
            if call.what == "begun":
                begun.setdefault(call.offset, []).append(call)
        by_pid = {(c.pid, c.offset, c.attempt) for c in calls if c.what == "ended"}
        killed = {kill.pid for kill in self._kills}
        running = [
            c for of in begun.values() for c in of if c.pid in killed and (c[1:4]) not in by_pid
        ]
        ran = {(call.pid, call.offset) for call in running}
        waits: list[float] = []
        for kill in self._kills:
            for offset in kill.in_hand:
                others = (c.at for c in begun.get(offset, []) if c.pid != kill.pid)
                later = [at - kill.at for at in others if at > kill.at]
                waits += [min(later)] if later else []
        cuts = statistics.quantiles(waits, n=100, method="inclusive")
        return {
            "kills": len(self._kills),
            "lost": messages - len(ended),
            "completed twice": sum(times - 1 for times in ended.values()),
            "begun twice": sum(len(of) - 1 for of in begun.values()),
            "calls that ran": len(ran),
            "attempts spent": sum(max(c.attempt for c in of) - 1 for of in begun.values()),
            "next start p50, s": round(cuts[49], 2),
            "p99, s": round(cuts[98], 2),
            "longest, s": round(max(waits), 2),
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--shape", choices=["only", "mates"], default="only")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    server.choose(options.server)
    contender = Contender(options.checkout.resolve(), f"{server.name()}_kills")
    with server.created(contender.database), tempfile.TemporaryDirectory() as folder:
        spawn = contender.spawn()
        spawn(MIGRATE).succeed()
        spawn.close()
        found = Killing(contender, options.shape, options.kills, Path(folder)).run()
    for name, value in found.items():
        print(f"{name:20} {value:>10}")
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures one peer: sending, handling, latency, processor time, and what a kill costs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from tests.processes import ROOT

WORKERS = 2
SENDERS = 8
RATE = 200  # messages a second while the latency is measured
KILLS = 4
KILL_PAUSE = 0.02  # seconds that a handler takes while workers are killed
TICK = os.sysconf("SC_CLK_TCK")
START_SECONDS = 60.0


@dataclass(frozen=True)
class Peer:
    """Names a peer and its program."""

    name: str
    server: str
    program: str
    durable: bool  # a message whose sending has returned survives a power cut
    in_transaction: bool  # it is sent with the writes of the caller, or not at all
    batches: bool = False
    env: dict[str, str] = field(default_factory=dict)
    # Without progress for so many seconds, what is left counts as lost.
    patience: float = 60.0


@dataclass
class Figures:
    """What one peer did. Rates are messages a second; the processor time includes the server's."""

    peer: str
    durable: bool
    in_transaction: bool
    send_1: float = 0.0
    send_8: float = 0.0
    handle_one: float = 0.0
    handle_batch: float | None = None
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    cpu_us: float = 0.0  # of sending one message by one process, and handling it
    killed_sent: int = 0
    lost: int = 0
    doubled: int = 0
    seconds_to_finish: float = 0.0  # from the last kill on


class Contest:
    """Runs the program of one peer against its server, whose process is ``server``."""

    def __init__(
        self, peer: Peer, env: dict[str, str], server: int, folder: Path, scale: float
    ) -> None:
        self._peer = peer
        self._env = {**os.environ, **peer.env, **env, "PYTHONPATH": str(ROOT)}
        self._server = server
        self._folder = folder
        self._scale = scale
        self._next = 1
        self._log = (folder / "log").open("ab")

    def run(self) -> Figures:
        peer = self._peer
        figures = Figures(peer.name, peer.durable, peer.in_transaction)
        self._program("setup").wait()
        self._handle(figures)
        if peer.batches:
            self._batches(figures)
        self._latency(figures)
        self._kills(figures)
        return figures

    # -- what is measured --

    def _handle(self, figures: Figures) -> None:
        used = self._used()
        count = self._count(4000)
        figures.send_1, first = self._send(1, count)
        with self._workers("one") as out:
            handled = self._wait(out, {*first})
            cpu = self._used() - used
        figures.cpu_us = round(cpu / count * 1e6, 1)
        figures.handle_one = _rate(handled)
        figures.send_8, rest = self._send(SENDERS, self._count(1000))
        with self._workers("one") as out:
            self._wait(out, {*rest})

    def _batches(self, figures: Figures) -> None:
        _rate_of_sending, numbers = self._send(SENDERS, self._count(2500))
        with self._workers("batch") as out:
            figures.handle_batch = _rate(self._wait(out, {*numbers}))

    def _latency(self, figures: Figures) -> None:
        with self._workers("one") as out:
            _unused, warm = self._send(1, 50)
            self._wait(out, {*warm})
            _unused, numbers = self._send(1, self._count(2000), rate=RATE)
            lines = self._wait(out, {*numbers})
        wanted = {*numbers}
        waits = [(at - sent) * 1000 for n, sent, at in lines if n in wanted]
        cuts = quantiles(waits, n=100, method="inclusive")
        figures.latency_p50_ms, figures.latency_p99_ms = round(cuts[49], 1), round(cuts[98], 1)

    def _kills(self, figures: Figures) -> None:
        """Kill one worker after the other, each with all its processes, while it handles."""
        _unused, numbers = self._send(1, self._count(2000))
        wanted, out = {*numbers}, self._out()
        env = {"PEER_PAUSE": str(KILL_PAUSE)}
        workers = [self._worker("one", out, env) for _ in range(WORKERS)]
        try:
            for number in range(KILLS):
                reached = len(wanted) * (number + 1) // (KILLS + 2)
                self._wait_for_lines(out, wanted, reached)
                victim = workers.pop(0)
                _kill(victim)
                workers.append(self._worker("one", out, env))
            killed_at = time.time()
            lines = self._wait(out, wanted, complete=False)
        finally:
            _end(workers)
        calls = Counter(n for n, _sent, _at in lines if n in wanted)
        figures.killed_sent = len(wanted)
        figures.lost = len(wanted) - len(calls)
        figures.doubled = sum(calls.values()) - len(calls)
        figures.seconds_to_finish = round(max(at for _n, _sent, at in lines) - killed_at, 1)

    # -- processes --

    def _send(self, senders: int, count: int, rate: float = 0) -> tuple[float, range]:
        """Let ``senders`` processes send ``count`` each; return the rate of all, and what."""
        programs = []
        numbers = range(self._next, self._next + senders * count)
        for _ in range(senders):
            programs.append(self._program("send", self._next, count, rate, piped=True))
            self._next += count
        for program in programs:
            assert program.stdout is not None
            ready = program.stdout.readline()
            assert ready == "ready\n", f"{self._peer.name} cannot send: {self._folder}/log"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        times = [json.loads(program.communicate()[0]) for program in programs]
        seconds = max(end for _start, end in times) - min(start for start, _end in times)
        return round(len(numbers) / seconds, 1), numbers

    @contextlib.contextmanager
    def _workers(self, kind: str) -> Iterator[Path]:
        out = self._out()
        workers = [self._worker(kind, out) for _ in range(WORKERS)]
        try:
            yield out
        finally:
            _end(workers)

    def _worker(
        self, kind: str, out: Path, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return self._program(
            "work", kind, env={"PEER_OUT": str(out), "PEER_GROUP": kind, **(env or {})}
        )

    def _program(
        self, *words: Any, piped: bool = False, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._log}
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", self._peer.program, *map(str, words)],
            **(pipes if piped else quiet),
            stderr=self._log,
            env={**self._env, **(env or {})},
            cwd=self._folder,
            text=True,
            start_new_session=True,
        )

    # -- what the handlers have written --

    def _out(self) -> Path:
        out = self._folder / f"out-{time.monotonic_ns()}"
        out.touch()
        return out

    def _wait(
        self, out: Path, wanted: set[int], *, complete: bool = True
    ) -> list[tuple[int, float, float]]:
        """Wait until every message was handled, or nothing comes any more; return the lines."""
        return self._wait_for_lines(out, wanted, len(wanted), complete=complete)

    def _wait_for_lines(
        self, out: Path, wanted: set[int], count: int, *, complete: bool = True
    ) -> list[tuple[int, float, float]]:
        known, since = -1, time.monotonic()
        while True:
            lines = _lines(out)
            seen = len({n for n, _sent, _at in lines} & wanted)
            if seen >= count:
                return lines
            if len(lines) != known:
                known, since = len(lines), time.monotonic()
            if time.monotonic() - since > max(self._peer.patience, START_SECONDS):
                assert not complete, f"{self._peer.name} does not handle: {self._folder}/log"
                return lines
            time.sleep(0.1)

    def _count(self, number: int) -> int:
        return max(100, int(number * self._scale))

    def _used(self) -> float:
        """Seconds of processor time, of the server and of all programs that have ended or run."""
        ours = os.times()
        # The server may be a child of this process.
        running = {self._server, *_family(self._server), *_family(os.getpid())}
        return ours.children_user + ours.children_system + sum(map(_processor_seconds, running))


def _lines(out: Path) -> list[tuple[int, float, float]]:
    rows = [line.split() for line in out.read_text().splitlines()]
    return [(int(row[0]), float(row[1]), float(row[2])) for row in rows if len(row) == 3]


def _rate(lines: list[tuple[int, float, float]]) -> float:
    """Return handled messages a second, from the first tenth on: workers start one by one."""
    times = sorted(at for _n, _sent, at in lines)
    first = len(times) // 10
    return round((len(times) - first - 1) / (times[-1] - times[first]), 1)


def _kill(worker: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _end(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(15)
        _kill(worker)  # what it has left behind in its process group


def _family(pid: int) -> list[int]:
    """Return the descendants of a process that run now."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            for word in (task / "children").read_text().split():
                found += [int(word), *_family(int(word))]
    return found


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)

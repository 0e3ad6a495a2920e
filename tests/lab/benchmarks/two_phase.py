"""Measures prepared messages: as fast as they can, at a steady rate, and what checks take.

Each message of 1 KB is prepared and then committed, in two transactions. Beside it is the same
message, sent at once.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

from tests.lab.benchmarks.contender import processor_seconds, server_pid
from tests.lab.benchmarks.figures import Options, Row, Value, interleaved
from tests.lab.benchmarks.sending import TOPIC, body, sender
from tests.lab.benchmarks.server import connect
from tests.lab.benchmarks.teams import Team, Work

CHECKER = "bench.order"
PROCESSES = (1, 8)
# Prepared messages a second, of all processes together.
RATES = (200, 1000, 2000)
SECONDS = 5
# Messages that wait for one round of checks.
WAITING = 2000


def figures(options: Options) -> Iterator[Row]:
    yield from speeds(options)
    yield from rates(options)
    yield checks(options)


def speeds(options: Options) -> Iterator[Row]:
    """Prepare and commit as fast as so many processes can, beside a plain send."""
    rounds, units = (3, 50) if options.quick else (5, 100)
    for processes in PROCESSES:
        ours, plain = Team(processes, preparer, 0.0, ""), Team(processes, sender)
        try:
            name = f"prepare and commit, {processes} process{'es' * (processes > 1)}, messages/s"
            yield interleaved(
                name,
                lambda: ours.round(units),  # noqa: B023 - called in this turn
                lambda: plain.round(units),  # noqa: B023
                rounds=rounds,
                target=0.3,
            )
        finally:
            ours.close()
            plain.close()


def rates(options: Options) -> Iterator[Row]:
    """Prepare and commit at a steady rate; what it costs, and how long each call takes."""
    plain = connect()
    server = server_pid(plain)
    plain.close()
    for rate in RATES[:1] if options.quick else RATES:
        with tempfile.TemporaryDirectory() as folder:
            seconds = 2 if options.quick else SECONDS
            yield _rate(rate, seconds, folder, server)


def _rate(rate: int, seconds: int, folder: str, server: int | None) -> Row:
    processes = PROCESSES[-1]
    team = Team(processes, preparer, rate / processes, folder)
    try:
        pids = [process.pid for process in team._processes if process.pid is not None]
        before = sum(map(processor_seconds, pids)), processor_seconds(server) if server else 0.0
        reached = team.round(rate * seconds // processes)
        after = sum(map(processor_seconds, pids)), processor_seconds(server) if server else 0.0
    finally:
        team.close()
    took = [pair for path in Path(folder).iterdir() for pair in json.loads(path.read_text())]
    micros = [(end - start) / len(took) * 1e6 for start, end in zip(before, after, strict=True)]
    values: dict[str, Value] = {
        "rate": rate,
        "reached/s": round(reached, 1),
        "prepare p50, ms": _percentile(50, [one for one, _two in took]),
        "prepare p99, ms": _percentile(99, [one for one, _two in took]),
        "commit p50, ms": _percentile(50, [two for _one, two in took]),
        "commit p99, ms": _percentile(99, [two for _one, two in took]),
        "client CPU, µs": round(micros[0], 1),
        "server CPU, µs": round(micros[1], 1) if server else None,
    }
    return Row(f"{rate}/s", values)


def checks(options: Options) -> Row:
    """Ask a function about many messages that are due, in one process."""
    _set_up()
    from streams import Decision, checkback, prepare
    from streams.models import PreparedRow, UtcNow
    from streams.two_phase.checking import check_due

    count = WAITING // 50 if options.quick else WAITING
    checkback(f"{CHECKER}.asked")(lambda message: Decision.COMMIT)
    for n in range(count):
        prepare(TOPIC, body(), biz="checked", biz_key=n, checker=f"{CHECKER}.asked")
    rows = PreparedRow.objects.filter(checker=f"{CHECKER}.asked")
    rows.update(next_at=UtcNow())
    started = time.monotonic()
    while rows.filter(state="PREPARED").exists():
        check_due("default", 60.0)
    seconds = time.monotonic() - started
    return Row("checks that commit, 1 process", {"messages": count, "checks/s": count / seconds})


def preparer(rate: float, folder: str) -> Work:
    """Return work that prepares and commits, at most ``rate`` a second if it is not 0.

    What each call took is written into a file of ``folder``, if one is given.
    """
    _set_up()
    from streams import Decision, checkback, prepare

    checkback(CHECKER)(lambda message: Decision.UNKNOWN)
    order, numbers = body(), _numbers()

    def once() -> tuple[float, float]:
        start = time.perf_counter()
        held = prepare(TOPIC, order, biz="bench", biz_key=next(numbers), checker=CHECKER)
        middle = time.perf_counter()
        held.commit()
        return middle - start, time.perf_counter() - middle

    def work(units: int) -> None:
        took = []
        began = time.monotonic()
        for n in range(units):
            if rate:
                time.sleep(max(0.0, began + n / rate - time.monotonic()))
            took.append(once())
        if folder:
            Path(folder, f"{os.getpid()}.json").write_text(json.dumps(took))

    once()
    return work


def _numbers() -> Iterator[str]:
    at, n = f"{os.getpid()}-{time.time()}", 0
    while True:
        n += 1
        yield f"{at}-{n}"


def _percentile(share: int, seconds: list[float]) -> float:
    return round(quantiles(seconds, n=100, method="inclusive")[share - 1] * 1000, 2)


def _set_up() -> None:
    import django

    django.setup()

"""Two lines: a batch handler beside its statements, and a one-message handler at the defaults."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.lab.benchmarks.consume.bounds import BOUNDS
from tests.lab.benchmarks.consume.cost import Cost, far_behind
from tests.lab.benchmarks.consume.log import Log
from tests.lab.benchmarks.consume.processes import LINES, PROCESSES, Consumers, Line, Spent
from tests.lab.benchmarks.consume.replay import replayer, unit_of_work
from tests.lab.benchmarks.contender import this
from tests.lab.benchmarks.figures import Options, Row, Value, alternately
from tests.lab.benchmarks.server import logged
from tests.lab.benchmarks.teams import Team

LOG = 60_000  # messages
ROUND_SECONDS = 1.5
TARGETS = {"batch": 0.4}  # of the speed of the bare statements


def figures(options: Options) -> Iterator[Row]:
    for line in LINES.values():
        yield from _figures(line, options)


def _figures(line: Line, options: Options) -> Iterator[Row]:
    scale, rounds = (5, 2) if options.quick else (1, 5)
    log = Log(this(), f"bench-{line.name}", LOG // scale, ["ours", "raw"])
    consumers = Consumers(this(), line, log)
    try:
        behind = line.counted // scale
        speeds: list[float] = []
        statements = logged(lambda: speeds.append(consumers.round(behind)))
        cost = far_behind(statements, log.end, behind)
        messages = a_round(speeds[0], log.size)
        runs: list[Callable[[], float]] = [lambda: consumers.round(messages)]
        team = _team(line, log, statements)
        if team:
            runs.append(lambda: _raw(team, log, messages))
        try:
            consumers.round(messages)
            consumers.spent = Spent()
            found = alternately(runs, rounds)
        finally:
            if team:
                team.close()
        row = _row(line, found, consumers, cost)
        yield replace(row, failure="") if options.quick else row  # so few are never far behind
    finally:
        consumers.close()
        log.plain.close()


def a_round(speed: float, most: int) -> int:
    """Return how many messages a round has, so that it takes a second or two."""
    return max(min(most, 6_000), min(most, round(speed * ROUND_SECONDS / 1000) * 1000))


def _team(line: Line, log: Log, statements: dict[int, list[str]]) -> Team | None:
    """Return the processes that send the bare statements; None if there is no such comparison."""
    if line.name not in TARGETS:
        return None
    try:
        unit, size = unit_of_work(statements)
    except (AssertionError, ValueError, LookupError) as error:
        print(f"  no bare statements beside: a delivery was not recognised ({error!r:.200})")
        return None
    return Team(PROCESSES, replayer, unit, size, log.groups["raw"], log.end)


def _raw(team: Team, log: Log, messages: int) -> float:
    log.rewind("raw", messages)
    team.round(1)
    return log.speed("raw")


def _row(line: Line, found: list[list[float]], consumers: Consumers, cost: Cost) -> Row:
    ours, *raw = [statistics.median(speeds) for speeds in found]
    spent = consumers.spent
    values: dict[str, Value] = {
        "ours": round(ours, 1),
        "raw": round(raw[0], 1) if raw else None,
        "ratio": round(ours / raw[0], 3) if raw else None,
        "target": TARGETS.get(line.name),
        "client CPU, µs": round(spent.micros(spent.client_seconds), 1),
        "server CPU, µs": round(spent.micros(spent.server_seconds), 1),
        "statements": cost.per_100(cost.statements),
        "flushes": cost.per_100(cost.flushes),
    }
    bound = BOUNDS[line.name]
    beyond = [
        f"{values[name]} {name} per 100 messages, at most {limit:g}"
        for name, limit in bound._asdict().items()
        if float(values[name] or 0) > limit
    ]
    return Row(f"consume, {line.title}, messages/s", values, failure="; ".join(beyond))

"""Compares two checkouts.

``python -m tests.lab.benchmarks.compare BASE NEW [--lines batch,latency]``

Both work on databases of their own on one server (EMS_TEST_MYSQL_URL), in turn: one round of the
base, one of the new, in another order each time. Told are the medians, and new / base. Each line's
processes import EMS from their own checkout; what measures them is from here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.lab.benchmarks import server, web
from tests.lab.benchmarks.consume.cost import far_behind
from tests.lab.benchmarks.consume.lines import LOG, a_round
from tests.lab.benchmarks.consume.log import Log
from tests.lab.benchmarks.consume.processes import LINES, Consumers, Spent
from tests.lab.benchmarks.contender import Contender
from tests.lab.benchmarks.figures import Row, alternately, table
from tests.lab.benchmarks.latency import LIMITS, measure
from tests.lab.benchmarks.server import logged

SEND, LATENCY = "send", "latency"
NAMES = [*LINES, SEND, LATENCY, web.SEND, web.PULL]
SENT = 1_000  # messages of a round
LATENCY_SECONDS = 5

MIGRATE = """
from django.core.management import call_command
import streams

for app in ("ems", "ems_monitoring"):
    call_command("migrate", app, verbosity=0)
print(streams.__file__)
"""
SENDER = f"""
import time
from streams import send

for _ in range(100):
    send("compare-send", "x" * 1000)
started = time.monotonic()
for _ in range({SENT}):
    send("compare-send", "x" * 1000)
print({SENT} / (time.monotonic() - started))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.benchmarks.compare")
    parser.add_argument("base", type=Path, help="the folder of a checkout")
    parser.add_argument("new", type=Path, help="the folder of another one")
    parser.add_argument("--rounds", type=int, default=7, help="of each (%(default)s)")
    parser.add_argument("--lines", default=",".join(NAMES), help="%(default)s")
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    chosen = options.lines.split(",")
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"there is no line {', '.join(unknown)}")
    try:
        server.choose(options.server)
        with ExitStack() as stack:
            both = [
                stack.enter_context(_database(folder.resolve(), which))
                for which, folder in (("base", options.base), ("new", options.new))
            ]
            for name in chosen:
                started = time.monotonic()
                rows = list(_compared(name, both, options.rounds))
                print(f"\n{name}: {time.monotonic() - started:.0f} s\n{table(rows)}", flush=True)
    except server.Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


@contextmanager
def _database(folder: Path, which: str) -> Iterator[Contender]:
    """Yield a checkout with a database that it has migrated."""
    contender = Contender(folder, f"{server.name()}_{which}")
    with server.created(contender.database):
        spawn = contender.spawn()
        try:
            told = spawn(MIGRATE).succeed().splitlines()[-1]
        finally:
            spawn.close()
        assert Path(told).is_relative_to(folder), f"{folder} is not what is measured, but {told}"
        print(f"{which}: {told}", flush=True)
        yield contender


def _compared(name: str, both: list[Contender], rounds: int) -> Iterator[Row]:
    if name in LINES:
        yield from _consuming(name, both, rounds)
    elif name in (web.SEND, web.PULL):
        yield from _requesting(name, both, rounds)
    elif name == SEND:
        yield row("send, messages/s", alternately([_sender(one) for one in both], rounds))
    else:
        waits: list[list[dict[int, float]]] = [[], []]
        alternately([_waiter(one, to) for one, to in zip(both, waits, strict=True)], rounds)
        for share in LIMITS:
            found = [[one[share] for one in of] for of in waits]
            yield row(f"commit to handler, p{share}, ms", found)


def _consuming(name: str, both: list[Contender], rounds: int) -> Iterator[Row]:
    line = LINES[name]
    with ExitStack() as stack:
        logs = [Log(one, f"bench-{name}", LOG, ["ours"]) for one in both]
        teams = []
        for one, log in zip(both, logs, strict=True):
            teams.append(Consumers(one, line, log))
            stack.callback(teams[-1].close)
        costs, runs = [], []
        for one, log, team in zip(both, logs, teams, strict=True):
            speeds: list[float] = []
            said = logged(partial(_note_round, team, line.counted, speeds), one.database)
            costs.append(far_behind(said, log.end, line.counted))
            messages = a_round(speeds[0], log.size)
            team.round(messages)
            team.spent = Spent()
            runs.append(partial(team.round, messages))
        yield row(f"consume, {line.title}, messages/s", alternately(runs, rounds))
        spent = [team.spent for team in teams]
        yield row("client CPU, µs a message", [[s.micros(s.client_seconds)] for s in spent])
        yield row("server CPU, µs a message", [[s.micros(s.server_seconds)] for s in spent])
        yield row("statements per 100", [[cost.per_100(cost.statements)] for cost in costs])
        yield row("log flushes per 100", [[cost.per_100(cost.flushes)] for cost in costs])


def _requesting(name: str, both: list[Contender], rounds: int) -> Iterator[Row]:
    with ExitStack() as stack:
        webs = []
        for one in both:
            webs.append(web.Web(one, name, rounds))
            stack.callback(webs[-1].close)
        what = "sends" if name == web.SEND else "pulls and acks of ten"
        yield row(f"{what}, a second", alternately([one.round for one in webs], rounds))
        spent = [one.spent for one in webs]
        yield row("web CPU, ms each", [[s.micros(s.client_seconds) / 1000] for s in spent])
        yield row("database CPU, ms each", [[s.micros(s.server_seconds) / 1000] for s in spent])
        each = [[one.statements / one.spent.messages] for one in webs]
        yield row("statements each", each)


def _note_round(team: Consumers, messages: int, speeds: list[float]) -> None:
    speeds.append(team.round(messages))


def _sender(contender: Contender) -> Callable[[], float]:
    def run() -> float:
        spawn = contender.spawn()
        try:
            return float(spawn(SENDER).succeed().splitlines()[-1])
        finally:
            spawn.close()

    return run


def _waiter(contender: Contender, to: list[dict[int, float]]) -> Callable[[], float]:
    def run() -> float:
        to.append(measure(contender, LATENCY_SECONDS))
        return 0.0

    return run


def row(name: str, found: list[list[float]]) -> Row:
    """Return the medians of the base and the new, and new / base."""
    base, new = (statistics.median(values) for values in found)
    values = {"base": round(base, 2), "new": round(new, 2), "new / base": round(new / base, 3)}
    return Row(name, {**values})


if __name__ == "__main__":
    sys.exit(main())

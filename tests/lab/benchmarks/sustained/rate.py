"""Measures the highest rate that holds while all goes on at once, and what it costs for long.

Single sends of 1 KB, the sequencer, two groups that handle message by message, and the purge, all
at the defaults and without Redis. A rate holds if both groups stay as far behind as they are. It is
searched by short tries; then it is held for long, and once more while a snapshot is open.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.lab.benchmarks.contender import this
from tests.lab.benchmarks.figures import Options, Row, Value
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.sustained.traffic import GROUPS, TOPIC, Traffic
from tests.lab.benchmarks.sustained.watch import (
    HELD_LOOK_SECONDS,
    LOOK_SECONDS,
    MB,
    Counters,
    Seen,
    behind,
    look,
    make_bystander,
    snapshot,
)

SECONDS, TRY_SECONDS, QUICK_SECONDS = 600.0, 30.0, 4.0
FIRST, FACTOR, LOWER = 500, 1.5, 0.9  # a second; up while it holds, then down
LOWEST = 10  # a second: below it nothing is searched
FINER = 3  # how often the gap between what holds and what does not is halved
# A rate holds if as much arrives as was to be sent, the lag is never more than so many seconds of
# sending, and grows by less than this share of what is sent.
ARRIVES, LAG_SECONDS, GROWS = 0.97, 3.0, 0.02
# A long run is given up at so many seconds of lag, and made again at a lower rate; under a snapshot
# it goes on to its end.
GIVEN_UP_SECONDS, LOWERED = 10.0, 5
DRAIN_SECONDS = 120.0


@dataclass
class Run:
    """What one run has shown."""

    rate: float
    values: dict[str, Value]
    holds: bool
    failure: str


def figures(options: Options) -> Iterator[Row]:
    from streams.models import ConsumerGroup, Topic

    topic = Topic.objects.create(name=TOPIC, retention_consumed=True)
    partition = topic.partitions.get()
    for name in GROUPS:
        group = ConsumerGroup.objects.create(topic=topic, name=name)
        group.cursors.create(partition=partition)
    plain = connect()
    make_bystander(plain)
    plain.close()
    rate = 0.0
    for tried in search(options.quick):
        rate = max(rate, tried.rate if tried.holds else 0.0)
        keys = ("sent/s", "handled/s", "lag max")
        values: dict[str, Value] = {key: tried.values[key] for key in keys}
        values["holds"] = "yes" if tried.holds else "no"
        yield Row(f"try of {tried.rate:.0f}/s", values, tried.failure)
    rate = rate or FIRST
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    found = run(rate, seconds)
    for _ in range(0 if options.quick else LOWERED):  # a few seconds are too short to judge
        if found.holds:
            break
        rate = round(rate * LOWER)
        found = run(rate, seconds)
    yield _long(found, seconds, "")
    if options.snapshot:
        yield _long(run(found.rate, seconds, held=True), seconds, ", a snapshot held open")


def search(quick: bool) -> Iterator[Run]:
    """Yield tries: higher by FACTOR while the rate holds, lower until it does, then in between."""
    seconds = QUICK_SECONDS if quick else TRY_SECONDS
    tried = run(float(FIRST), seconds)
    yield tried
    if quick:
        return
    upwards = tried.holds
    while tried.holds == upwards:
        last = tried.rate
        at = round(last * FACTOR if upwards else last / FACTOR)
        if at < LOWEST:
            return
        tried = run(at, seconds)
        yield tried
    low, high = sorted((last, tried.rate))
    for _ in range(FINER):
        tried = run(round((low + high) / 2), seconds)
        yield tried
        low, high = (tried.rate, high) if tried.holds else (low, tried.rate)


def run(rate: float, seconds: float, *, held: bool = False) -> Run:
    """Send at a rate for so long; raises what a process of the load has failed with."""
    plain, seen = connect(), Seen()
    before, first = Counters.now(plain), _sent(plain)
    traffic = Traffic(this(), rate, seconds)
    # To count an inbox under a snapshot, the server reads all that has left it: it would be a load.
    pause = HELD_LOOK_SECONDS if held else LOOK_SECONDS
    try:
        with snapshot(held):
            most = float("inf") if held else rate * GIVEN_UP_SECONDS
            whole = look(plain, seen, traffic.began + seconds, most, pause)
            sending = min(seconds, time.time() - traffic.began)
            senders = traffic.stop_senders() if whole else traffic.kill_senders()
            at_end, accepted = max(0.0, behind(plain)), _sent(plain) - first
            drained = _drain(plain)
            took = time.time() - traffic.began
        handled, consumer, purge = traffic.stop()
        after = Counters.now(plain)
    finally:
        traffic.close()
        plain.close()
    done = max(1, accepted)
    finished = len(GROUPS) * (accepted - at_end)
    values: dict[str, Value] = {
        "rate": rate,
        "seconds": seconds,
        "sent/s": round(accepted / sending, 1),
        "handled/s": round(finished / sending, 1),
        "lag p50": _cut(seen.lag, 50),
        "lag p99": _cut(seen.lag, 99),
        "lag max": max(seen.lag, default=0.0),
        "send to handler p50, ms": _rounded(handled.p50),
        "send to handler p99, ms": _rounded(handled.p99),
        "bystander p50, ms": _cut(seen.bystander, 50),
        "bystander p99, ms": _cut(seen.bystander, 99),
        "history list, max": max(seen.history, default=0.0),
        "history list, end": seen.history[-1] if seen.history else None,
        "tables grew, MB": round((after.tables - before.tables) / MB, 1),
        "undo grew, MB": round((after.undo - before.undo) / MB, 1),
        "binary log, MB": _grown(before.binlog, after.binlog),
        "row-lock waits": after.lock_waits - before.lock_waits,
        "row-lock waits, s": round(after.lock_seconds - before.lock_seconds, 2),
        "senders CPU, µs": round(senders / done * 1e6, 1),
        "consumers CPU, µs": round(consumer / done * 1e6, 1),
        "purge CPU, µs": round(purge / done * 1e6, 1),
        "server CPU, µs": round((after.server_seconds - before.server_seconds) / done * 1e6, 1),
        "seconds until all was handled": round(took, 1),
    }
    failure = ""
    if drained and min(handled.calls) < accepted:
        failure = f"{accepted} messages, and calls {handled.calls}"
    holds = whole and bounded(seen.lag, rate, pause) and accepted >= ARRIVES * rate * seconds
    return Run(rate, values, holds, failure)


def bounded(lag: Sequence[float], rate: float, pause: float = LOOK_SECONDS) -> bool:
    """Tell whether the lag, with a value each ``pause`` s, stays small and does not grow."""
    third = len(lag) // 3
    if not third:
        return max(lag, default=0.0) <= LAG_SECONDS * rate
    early, late = statistics.median(lag[third : 2 * third]), statistics.median(lag[2 * third :])
    grown = late - early
    # The middles of these thirds are so many looks apart; a tenth of a second is chance.
    return max(lag[third:]) <= LAG_SECONDS * rate and grown <= rate * (GROWS * third * pause + 0.1)


def _long(found: Run, seconds: float, how: str) -> Row:
    holds = "yes" if found.holds else "no"
    values: dict[str, Value] = {**found.values, "holds": holds}
    return Row(f"{seconds:.0f} s{how}", values, found.failure)


def _drain(plain: object) -> bool:
    """Wait until both groups have handled all; return whether they have."""
    until = time.monotonic() + DRAIN_SECONDS
    while behind(plain) > 0:
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _sent(plain: object) -> int:
    """Return how many messages are committed: those in the log, and those in the inbox."""
    statement = (
        "SELECT p.next_offset + (SELECT COUNT(*) FROM ems_msg m WHERE m.partition_id = p.id"
        " AND m.offset IS NULL) FROM ems_partition p JOIN ems_topic t ON t.id = p.topic_id"
        f" WHERE t.name = '{TOPIC}'"
    )
    ((sent,),) = execute(plain, statement)
    return int(sent)


def _cut(values: Sequence[float], share: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return round(cuts[share - 1], 2)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round((after - before) / MB, 1)

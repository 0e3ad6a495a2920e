"""Measures from the commit of a message to its handler call, with Redis, at a steady rate.

Both ends note the clock of the machine: the producer when its send has returned, the handler when
it is called. One producer process, one consumer process, one group.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab.benchmarks.contender import Contender, this
from tests.lab.benchmarks.figures import Options, Row

TOPIC = "bench-latency"
A_SECOND = 200
# Milliseconds, the most that half and that 99 of 100 messages may take.
LIMITS = {50: 10.0, 99: 50.0}

CONSUMER = f"""
import sys, time
from django.core.management import call_command
from streams import consumer

seen = open(sys.argv[1], "w")

@consumer("{TOPIC}", group="latency", threads=2)
def note(message):
    seen.write(f"{{message.body}} {{time.time()}}\\n")

call_command("ems_consume", "--start", "earliest")
seen.close()
"""
PRODUCER = f"""
import sys, time
from streams import send

count = int(sys.argv[2])
started = time.monotonic()
with open(sys.argv[1], "w") as sent:
    for n in range(count):
        time.sleep(max(0.0, started + n / {A_SECOND} - time.monotonic()))
        send("{TOPIC}", n)
        sent.write(f"{{n}} {{time.time()}}\\n")
"""


def figures(options: Options) -> Iterator[Row]:
    took = measure(this(), 3 if options.quick else 30)
    for share, limit in LIMITS.items():
        name = f"commit to handler at {A_SECOND}/s, p{share}"
        yield Row(name, {"ms": took[share], "limit, ms": limit})


def measure(contender: Contender, seconds: float) -> dict[int, float]:
    """Return the milliseconds within which LIMITS percent of the messages came."""
    with tempfile.TemporaryDirectory() as folder:
        waits = _waits(contender, Path(folder), int(A_SECOND * seconds))
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {share: round(cuts[share - 1], 2) for share in LIMITS}


def _waits(contender: Contender, folder: Path, count: int) -> list[float]:
    """Milliseconds of each message."""
    spawn = contender.spawn(REDIS="redis", POLL_SECONDS=1.0)
    sent, seen = folder / "sent", folder / "seen"
    try:
        consumer = spawn(CONSUMER, seen)
        consumer.expect("database connections")
        spawn(PRODUCER, folder / "warm", A_SECOND).succeed()
        spawn(PRODUCER, sent, count).succeed()
        time.sleep(1.0)  # generous beside what is measured; who comes later is missed below
        consumer.terminate()
        consumer.succeed()
    finally:
        spawn.close()
    # The warm-up has the same numbers: the later line counts.
    commits, calls = _times(sent), _times(seen)
    assert len(commits) == count
    assert commits.keys() <= calls.keys(), "messages are missing"
    return [max(0.0, calls[n] - commits[n]) * 1000 for n in commits]


def _times(path: Path) -> dict[str, float]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {n: float(at) for n, at in rows}

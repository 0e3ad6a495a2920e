"""Measures from the commit of a message to its handler call, with Redis, at a steady rate.

Both ends note the clock of the machine: the producer when its send has returned, the handler when
it is called. One producer process, one consumer process, one group. Where the time goes is measured
apart, at a rate at which a message meets no other one: the consumer notes when each step ends.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab.benchmarks.contender import POLL_SECONDS, Contender, this
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
import gc, sys, time
from streams import send

gc.freeze()  # a full collection would stop the sender, and no message would come
count, rate = map(int, sys.argv[2:])
started = time.monotonic() + 1
with open(sys.argv[1], "w") as sent:
    for n in range(-rate, count):  # for a second, both processes get to know what they need
        time.sleep(max(0.0, started + n / rate - time.monotonic()))
        send("{TOPIC}", n)
        if n >= 0:
            sent.write(f"{{n}} {{time.time()}}\\n")
"""

# The functions that a message passes, in order, and whether the step ends with their begin or end.
STEPS = {
    "wake-up": ("streams.process.arrivals.Arrivals.wake", "begin"),
    "look": ("streams.deliver.poller.Poller.look", "begin"),
    "worker": ("streams.process.turn.Turn._take", "begin"),
    "sequence": ("streams.log.sequencer.sequence_locked", "end"),
    "claim": ("streams.deliver.reading.stored_messages", "begin"),
    "read": ("streams.deliver.reading.stored_messages", "end"),
}
NOTE_STEPS = f"""
import functools, time
from django.utils.module_loading import import_string

noted = []

def note(name, path, when):
    place, _, attribute = path.rpartition(".")
    owner = import_string(place) if place.rpartition(".")[2][0].isupper() else __import__(
        place, fromlist=["x"])
    function = getattr(owner, attribute)

    @functools.wraps(function)
    def noting(*args, **kwargs):
        if when == "begin":
            noted.append((name, time.time()))
        returned = function(*args, **kwargs)
        if when == "end":
            noted.append((name, time.time()))
        return returned

    setattr(owner, attribute, noting)

for name, (path, when) in {STEPS!r}.items():
    note(name, path, when)
"""
TELL_STEPS = """
with open(sys.argv[2], "w") as steps:
    steps.writelines(f"{name} {at}\\n" for name, at in noted)
"""
ALONE_A_SECOND = 10


def figures(options: Options) -> Iterator[Row]:
    took = measure(this(), 3 if options.quick else 30)
    for share, limit in LIMITS.items():
        name = f"commit to handler at {A_SECOND}/s, p{share}"
        yield Row(name, {"ms": took[share], "limit, ms": limit})
    for redis in (True, False):
        way = "with Redis" if redis else f"without, a look each {POLL_SECONDS} s"
        for step, ms in steps(this(), 3 if options.quick else 20, redis=redis).items():
            yield Row(f"{way}: {step}", {"ms": ms})


def measure(contender: Contender, seconds: float) -> dict[int, float]:
    """Return the milliseconds within which LIMITS percent of the messages came."""
    with tempfile.TemporaryDirectory() as folder:
        waits = _waits(contender, Path(folder), int(A_SECOND * seconds))
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {share: round(cuts[share - 1], 2) for share in LIMITS}


def steps(contender: Contender, seconds: float, *, redis: bool) -> dict[str, float]:
    """Return the median of the milliseconds of each step, and of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path, count = Path(folder), int(ALONE_A_SECOND * seconds)
        told = NOTE_STEPS + CONSUMER + TELL_STEPS
        commits, calls = _run(contender, path, told, count, ALONE_A_SECOND, redis=redis)
        lines = (line.rsplit(" ", 1) for line in (path / "steps").read_text().splitlines())
        noted = [(name, float(at)) for name, at in lines]
    took: dict[str, list[float]] = {}
    for number, committed in commits.items():
        before = committed
        for name in [*STEPS, "call"]:
            at = calls[number]
            if name != "call":
                at = next((t for n, t in noted if n == name and before <= t <= at), before)
            took.setdefault(name, []).append(at - before)
            before = at
        took.setdefault("all", []).append(before - committed)
    return {name: round(statistics.median(each) * 1000, 2) for name, each in took.items()}


def _waits(contender: Contender, folder: Path, count: int) -> list[float]:
    """Milliseconds of each message."""
    commits, calls = _run(contender, folder, CONSUMER, count, A_SECOND)
    return [max(0.0, calls[n] - commits[n]) * 1000 for n in commits]


def _run(
    contender: Contender, folder: Path, code: str, count: int, rate: int, *, redis: bool = True
) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each message was committed, and when the handler was called with it."""
    wake = {"REDIS": "redis", "POLL_SECONDS": 1.0} if redis else {"POLL_SECONDS": POLL_SECONDS}
    spawn = contender.spawn(**wake)
    sent, seen = folder / "sent", folder / "seen"
    try:
        consumer = spawn(code, seen, folder / "steps")
        consumer.expect("database connections")
        spawn(PRODUCER, sent, count, rate).succeed()
        time.sleep(1.0)  # generous beside what is measured; who comes later is missed below
        consumer.terminate()
        consumer.succeed()
    finally:
        spawn.close()
    commits, calls = _times(sent), _times(seen)
    assert len(commits) == count
    assert commits.keys() <= calls.keys(), "messages are missing"
    return commits, calls


def _times(path: Path) -> dict[str, float]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {n: float(at) for n, at in rows}

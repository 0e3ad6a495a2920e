"""Plans how many servers a rate needs, from the unit costs that ``make bench`` has kept.

``python -m tests.lab.benchmarks.plan --rate 1e6 --groups 2 --size 1024 --cores 16 --batch 100``.
Each line says whether its figure was measured, follows from measured ones, or is assumed. It is a
model: no run has shown that a server keeps up with so many commits, or purges so much beside its
writers.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.benchmarks.charts import rows
from tests.lab.benchmarks.figures import number
from tests.lab.benchmarks.sending import A_CALL
from tests.lab.benchmarks.tables import markdown

CLIENT, SERVER = "client CPU, µs", "server CPU, µs"
MEASURED, FOLLOWS, ASSUMED = "measured", "follows", "**assumed**"
# Benchmarks run without a binary log and without a replica; both cost the server something.
REPLICATION = 1.35
LOAD = 0.5  # of its cores that a server may use: the rest is for peaks and for the business
# The row and its indexes, the redo log, the double write and the binary log.
WRITES = 6
KEPT = 1.3  # the rows on disk, with their indexes
# Two partitions a server at least: one sequencer is enough for each, and one may be behind.
PARTITIONS = 2


@dataclass(frozen=True)
class Wish:
    """Says what is wanted: messages a second, of so many bytes, in calls of so many."""

    rate: float
    groups: int = 2
    size: int = 1024
    cores: int = 16
    batch: int = 100


class NotMeasured(Exception):
    """Says which section of ``make bench`` has to run first."""


def plan(wish: Wish) -> Iterator[tuple[str, float, str]]:
    """Yield the lines of the plan: what, how much, and how that is known.

    Raises NotMeasured where a unit cost has not been kept.
    """
    send, groups = _sending(SERVER, wish.batch), wish.groups * _consuming(SERVER, wish.batch)
    sequence, purge = _unit("sequence", SERVER), _unit("purge", SERVER)
    yield "server CPU of a send, µs", send, MEASURED if wish.batch in (1, A_CALL) else FOLLOWS
    yield "server CPU of the sequencer, µs", sequence, MEASURED
    yield f"server CPU of {wish.groups} groups, µs", groups, MEASURED
    yield "server CPU of the purge, µs", purge, MEASURED
    yield "binary log and replica, times", REPLICATION, ASSUMED
    each = (send + sequence + groups + purge) * REPLICATION
    yield "server CPU of a message, µs", each, FOLLOWS
    busy = wish.rate * each / 1e6
    yield "cores that work", busy, FOLLOWS
    yield "cores that may work, of all", LOAD, ASSUMED
    servers = math.ceil(busy / LOAD / wish.cores)
    yield f"servers of {wish.cores} cores", servers, FOLLOWS
    yield "messages/s of a server", wish.rate / servers, FOLLOWS
    one = _row("sequence", "sequence")["ours"]
    yield "messages/s that one sequencer has given offsets", one, MEASURED
    partitions = max(PARTITIONS, math.ceil(wish.rate / servers / one))
    yield "partitions of a server", partitions, FOLLOWS
    yield "bytes written for a byte sent", WRITES, ASSUMED
    yield "MB/s written by a server", wish.rate / servers * wish.size * WRITES / 1e6, FOLLOWS
    yield "bytes on disk for a byte sent", KEPT, ASSUMED
    yield (
        "GB an hour on the disk of a server",
        (wish.rate / servers * wish.size * KEPT * 3600 / 1e9),
        FOLLOWS,
    )
    yield "cores of the producers", wish.rate * _sending(CLIENT, wish.batch) / 1e6, FOLLOWS
    consumers = wish.rate * wish.groups * _consuming(CLIENT, wish.batch) / 1e6
    yield "cores of the consumers, without their handlers", consumers, FOLLOWS


def _sending(column: str, batch: int) -> float:
    """Return the cost of a message in a call of so many: a cost of the call, and one for each."""
    alone, many = _unit("send,", column), _unit("send_many,", column)
    call = (alone - many) / (1 - 1 / A_CALL)
    return alone - call + call / batch


def _consuming(column: str, batch: int) -> float:
    name = "consume, batch" if batch > 1 else "consume, one-message"
    return _row("consume", name)[column]


def _unit(name: str, column: str) -> float:
    return _row("units", name)[column]


def _row(section: str, name: str) -> dict[str, float]:
    for row in rows(section):
        if row["name"].startswith(name):
            return row
    raise NotMeasured(f'Run first: make bench ARGS="{section} --keep"')


def table(wish: Wish) -> str:
    """Return the plan in Markdown."""
    lines = [[what, number(value), known] for what, value, known in plan(wish)]
    head = f"{wish.rate:,.0f} messages/s of {wish.size:,} bytes, {wish.batch} a call"
    return markdown([head, "", "known by"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.benchmarks.plan", description=__doc__
    )
    parser.add_argument("--rate", type=float, required=True, help="messages a second")
    parser.add_argument("--groups", type=int, default=Wish.groups, help="(%(default)s)")
    parser.add_argument("--size", type=int, default=Wish.size, help="bytes (%(default)s)")
    parser.add_argument("--cores", type=int, default=Wish.cores, help="of a server (%(default)s)")
    parser.add_argument(
        "--batch",
        type=int,
        default=Wish.batch,
        help="messages of a call, of the producer and of the handler (%(default)s)",
    )
    wish = Wish(**vars(parser.parse_args()))
    if min(wish.rate, wish.groups, wish.size, wish.cores, wish.batch) <= 0:
        parser.error("all figures must be positive")
    try:
        print(table(wish))
    except NotMeasured as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

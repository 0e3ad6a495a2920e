"""Plans what a rate of messages needs, from what one message costs.

It is a model: it multiplies. Each line says whether its figure was measured, follows from measured
ones, is a default, or is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from streams.conf import DEFAULTS, KEEPER_CONNECTIONS
from streams.errors import InvalidValue
from streams.sizing.costs import Costs, UnitCosts, costs

MEASURED, FOLLOWS, ASSUMED, DEFAULT = "measured", "follows", "assumed", "default"
# Benchmarks run without a binary log and without a replica; both cost the server something.
REPLICATION = 1.35
LOAD = 0.5  # of its cores, or threads, that may work: the rest is for peaks and for the business
# The row and its indexes, the redo log, the double write and the binary log.
WRITES = 6
KEPT = 1.3  # the rows on disk, with their indexes
# Two partitions a server at least: one sequencer is enough for each, and one may be behind.
PARTITIONS = 2


@dataclass(frozen=True)
class Wish:
    """What is wanted: messages a second, of so many bytes, in calls of so many."""

    rate: float
    groups: int = 2
    size: int = 1024
    cores: int = 16
    batch: int = 1
    retention_days: float = 7
    handler_seconds: float = 0.01


@dataclass(frozen=True)
class PlanLine:
    """One figure of a plan, and how it is known."""

    what: str
    value: float
    known: str


def plan(wish: Wish) -> Iterator[PlanLine]:
    """Yield the lines of the plan; raises InvalidValue for a wish that is not positive."""
    for one in fields(wish):
        value = getattr(wish, one.name)
        if not 0 < value < math.inf:
            raise InvalidValue(f"{one.name} must be positive, and not {value}.")
    found = costs()
    servers = 1
    for line in _server(wish, found):
        yield line
        if line.what.startswith("servers of "):
            servers = int(line.value)
    yield from _disk(wish, servers)
    yield from _processes(wish, found, servers)


def _server(wish: Wish, found: Costs) -> Iterator[PlanLine]:
    parts = found.server
    send = _sending(parts, found, wish.batch)
    groups = wish.groups * _consuming(parts, wish.batch)
    known = MEASURED if wish.batch in (1, found.a_call) else FOLLOWS
    yield PlanLine("server CPU of a send, µs", send, known)
    yield PlanLine("server CPU of the sequencer, µs", parts.sequence, MEASURED)
    yield PlanLine(f"server CPU of {wish.groups} groups, µs", groups, MEASURED)
    yield PlanLine("server CPU of the purge, µs", parts.purge, MEASURED)
    yield PlanLine("all at once, times", found.server_factor, MEASURED)
    yield PlanLine("binary log and replica, times", REPLICATION, ASSUMED)
    alone = send + parts.sequence + groups + parts.purge
    each = alone * found.server_factor * REPLICATION
    yield PlanLine("server CPU of a message, µs", each, FOLLOWS)
    busy = wish.rate * each / 1e6
    yield PlanLine("cores that work", busy, FOLLOWS)
    yield PlanLine("cores that may work, of all", LOAD, ASSUMED)
    servers = math.ceil(busy / LOAD / wish.cores)
    yield PlanLine(f"servers of {wish.cores} cores", servers, FOLLOWS)
    yield PlanLine("messages/s of a server", wish.rate / servers, FOLLOWS)
    yield PlanLine("messages/s that one sequencer has given offsets", found.sequencer, MEASURED)
    needed = math.ceil(wish.rate / servers / (LOAD * found.sequencer))
    yield PlanLine("partitions of a server", max(PARTITIONS, needed), FOLLOWS)


def _disk(wish: Wish, servers: int) -> Iterator[PlanLine]:
    bytes_a_second = wish.rate / servers * wish.size
    yield PlanLine("bytes written for a byte sent", WRITES, ASSUMED)
    yield PlanLine("MB/s written by a server", bytes_a_second * WRITES / 1e6, FOLLOWS)
    yield PlanLine("bytes on disk for a byte sent", KEPT, ASSUMED)
    kept = bytes_a_second * KEPT * 86400 * wish.retention_days / 1e9
    yield PlanLine(f"GB on the disk of a server, for {wish.retention_days:g} days", kept, FOLLOWS)


def _processes(wish: Wish, found: Costs, servers: int) -> Iterator[PlanLine]:
    calls = wish.rate * wish.groups
    send = _sending(found.client, found, wish.batch) * found.sender_factor
    yield PlanLine("cores of the producers", wish.rate * send / 1e6, FOLLOWS)
    each = _consuming(found.client, wish.batch) * found.consumer_factor
    cores = calls * each / 1e6
    yield PlanLine("cores of the consumers, without their handlers", cores, FOLLOWS)
    threads = calls * wish.handler_seconds / LOAD
    yield PlanLine("threads for the handlers", math.ceil(threads), FOLLOWS)
    of_one = int(DEFAULTS["processThreads"])
    yield PlanLine("threads of a process of ems_consume", of_one, DEFAULT)
    # Of a process one thread runs Python at a time.
    processes = math.ceil(max(threads / of_one, cores / LOAD, 2))
    yield PlanLine("processes of ems_consume", processes, FOLLOWS)
    to_each = math.ceil(of_one / servers) + KEEPER_CONNECTIONS
    yield PlanLine("connections of ems_consume to a server", processes * to_each, FOLLOWS)


def _sending(parts: UnitCosts, found: Costs, batch: int) -> float:
    """Return the cost of a message in a call of so many: a cost of the call, and one for each."""
    call = (parts.send - parts.send_many) / (1 - 1 / found.a_call)
    return parts.send - call + call / batch


def _consuming(parts: UnitCosts, batch: int) -> float:
    return parts.batch if batch > 1 else parts.one

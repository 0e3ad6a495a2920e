"""Finds what a request asks for: ranges of offsets of each partition, or of ids of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql.datasource import InputPartition

from sparkjobs.database import FOR_SHARE, Connection, fetch, transaction, vendor_of
from sparkjobs.errors import BadOption, MessagesPurged
from sparkjobs.instants import MICROSECONDS, microseconds, now
from sparkjobs.source.request import SKIP, SourceRequest


@dataclass(frozen=True)
class SourceLog:
    """One partition now, with the offsets ``first`` … ``end`` - 1."""

    id: int
    topic: str
    number: int
    first: int
    end: int
    topic_id: int = 0


@dataclass(frozen=True)
class Range:
    """Offsets or ids ``first`` … ``end`` - 1, with values that all its rows have."""

    first: int
    end: int
    partition_id: int = 0
    topic: str = ""
    number: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.first

    def cut(self, first: int, end: int) -> Range:
        return Range(first, end, self.partition_id, self.topic, self.number)


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads, one range after the other."""

    ranges: tuple[Range, ...]


def logs(connection: Connection, topic: str | None = None) -> list[SourceLog]:
    """Return the partitions of a topic, or of all; raises BadOption if there is no such topic."""
    rows = fetch(
        connection,
        "SELECT p.`id`, t.`name`, p.`number`, p.`first_offset`, p.`next_offset`,"
        " p.`topic_id`"
        " FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
        " WHERE %s IS NULL OR t.`name` = %s ORDER BY p.`id`",
        [topic, topic],
    )
    if topic is not None and not rows:
        raise BadOption(f"there is no topic {topic!r}")
    return [SourceLog(*row) for row in rows]


def selected(connection: Connection, request: SourceRequest) -> list[SourceLog]:
    """Return the partitions of the topics that the request names; raises BadOption.

    A pattern may match no topic yet.
    """
    found = logs(connection, request.topic)
    wanted = [log for log in found if request.selection.matches(log.topic, log.number)]
    request.selection.check_there({(log.topic, log.number) for log in wanted})
    return wanted


def ranges(connection: Connection, request: SourceRequest) -> list[Range]:
    """Return the ranges that the request asks for, as they are now; raises BadOption, Purged."""
    if not request.is_log:
        return _ids(connection, request)
    found = selected(connection, request)
    request.selection.check_known({(log.topic, log.number) for log in found})
    if unknown := set(request.bounds) - {log.id for log in found}:
        raise BadOption(f"bounds name partitions that are not there: {sorted(unknown)}")
    untils = [request.until_of(log.topic, log.number) for log in found]
    if any(untils):
        at = now(connection)
        found = [
            _settled(connection, log) if until and until <= at else log
            for log, until in zip(found, untils, strict=True)
        ]
    return [part for log in found for part in _offsets(connection, request, log)]


def cut(whole: Range, rows: int) -> Iterator[Range]:
    """Cut a range evenly into pieces of at most ``rows`` rows."""
    pieces = -(-whole.rows // rows)
    for piece in range(pieces):
        first = whole.first + whole.rows * piece // pieces
        yield whole.cut(first, whole.first + whole.rows * (piece + 1) // pieces)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges with those made one that follow each other in their partition."""
    found: list[Range] = []
    last: dict[int, int] = {}  # partition → where its last range is in found
    for part in ranges:
        at = last.get(part.partition_id)
        if at is not None and found[at].end == part.first:
            found[at] = found[at].cut(found[at].first, part.end)
        else:
            last[part.partition_id] = len(found)
            found.append(part)
    return tuple(found)


def _ids(connection: Connection, request: SourceRequest) -> list[Range]:
    name = request.source.name
    ((low, high),) = fetch(connection, f"SELECT MIN(`id`), MAX(`id`) FROM `{name}`")  # noqa: S608
    if low is None:
        return []
    first = max(low, request.start or 0)
    end = high + 1 if request.end is None else min(high + 1, request.end)
    return [Range(first, max(first, end))]


def _settled(connection: Connection, log: SourceLog) -> SourceLog:
    """Return the log with all messages that were sequenced until now, also those not committed yet.

    A short lock keeps the sequencer out, so what it writes later has a later time.
    """
    statement = "SELECT `next_offset` FROM `ems_partition` WHERE `id` = %s "
    with transaction(connection):
        rows = fetch(connection, statement + FOR_SHARE[vendor_of(connection)], [log.id])
    return replace(log, end=rows[0][0]) if rows else log


def _offsets(connection: Connection, request: SourceRequest, log: SourceLog) -> Iterator[Range]:
    asked = request.bounds.get(log.id, ())
    for first, end in asked:
        if end > log.end:
            raise BadOption(f"{log.topic}/{log.number} ends before {log.end}: not {first} … {end}")
    if not request.bounds:
        place = (log.topic, log.number, log.first, log.end)
        start = request.selection.start(*place) if request.start is None else request.start
        last = request.selection.end(*place) if request.end is None else min(request.end, log.end)
        asked = ((start, last),)
    since, until = (of(log.topic, log.number) for of in (request.since_of, request.until_of))
    earliest = offset_at(connection, log, since) if asked and since else 0
    latest = offset_at(connection, log, until) if asked and until else log.end
    for lowest, highest in asked:
        first, end = max(lowest, earliest), min(highest, latest)
        if first >= end:
            continue
        if first < log.first and request.purged != SKIP:
            raise MessagesPurged(
                f"{log.topic}/{log.number}: offsets from {first} on are asked for,"
                f" those before {log.first} have been purged"
            )
        first = max(first, log.first)
        if first < end:
            yield Range(first, end, log.id, log.topic, log.number)


def offset_at(connection: Connection, log: SourceLog, instant: datetime) -> int:
    """Return the first offset that was sequenced at ``instant`` or later, or the end of the log.

    It is found by bisection, since time never falls as offsets rise: some twenty rows are read by
    ems_msg_log.
    """
    at = MICROSECONDS[vendor_of(connection)].format("`sequenced_at`")
    low, high = log.first, log.end
    while low < high:
        middle = (low + high) // 2
        # The next existing offset is read, so that a hole does not stop the search.
        rows = fetch(
            connection,
            f"SELECT `offset`, {at} >= %s FROM `ems_msg`"  # noqa: S608 - our expression
            " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
            " ORDER BY `offset` LIMIT 1",
            [microseconds(instant), log.id, middle, high],
        )
        if not rows or rows[0][1]:
            high = middle
        else:
            low = rows[0][0] + 1
    return low

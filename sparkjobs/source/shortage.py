"""Says what is wrong when a range of offsets has fewer rows than offsets.

The offsets of a log are dense, except those that it leaves out since it was rewound. So every row
that was not read was purged, or is missing in the log: after a TRUNCATE, a DELETE by hand or a
restore of a part of the tables. Or the read was cut short: a driver that hides an error ends as if
there were no more rows, and a server that is behind gives what it has. That is never skipped, since
the rows are there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from sparkjobs.database import Connection, fetch
from sparkjobs.errors import MessagesPurged, Missing
from sparkjobs.source.left_out import left_out
from sparkjobs.source.request import SKIP, SourceRequest
from sparkjobs.source.splits import Range

# Offsets that are looked for in one statement, so that a check of a long range needs no memory.
STEP = 10_000


@dataclass
class Holes:
    """Offsets that are not in the log, added as they rise; ``first`` … ``last`` is a run."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if not self.count:
                self.first = self.last = offset
            elif self.last - self.first + 1 == self.count and offset == self.last + 1:
                self.last = offset
            self.count += 1

    def __str__(self) -> str:
        run = self.last - self.first + 1
        first = f"{self.first}" if run == 1 else f"{self.first} … {self.last}"
        then = ", …" if run < self.count else ""
        what = "1 offset is" if self.count == 1 else f"{self.count:,} offsets are"
        return f"{what} not in the log: {first}{then}"


def check(connection: Connection, request: SourceRequest, part: Range, found: int) -> None:
    """Raise Purged or Missing for a range of which only ``found`` rows were read.

    What was purged, and what is not in the log, is not an error if the request skips that. It is
    always one if more rows are left out than these.
    """
    if found == part.rows:
        return
    declared = left_out(connection, part.partition_id, range(part.first, part.end))
    rows = part.rows - sum(map(len, declared))
    if rows == found:
        return
    holes, floor = _holes(connection, part, declared)
    where = f"{part.topic}/{part.number}"
    if floor > part.first and request.purged != SKIP:
        raise MessagesPurged(
            f"{where}: offsets before {floor} were purged while"
            f" {part.first} … {part.end - 1} were read: read again from there"
        )
    if holes.count and request.holes != SKIP:
        raise Missing(f"{where}: {holes}; with holes=skip the rest is read")
    purged = max(0, min(floor, part.end) - part.first)
    if rows - found > holes.count + purged:
        raise Missing(
            f"{where}: {found:,} rows of the offsets {part.first} … {part.end - 1} were received,"
            " and the log has more: the connection was cut, or the server was behind; read again"
        )
    if holes.count:
        print(f"ems: {where}: {holes}: skipped", file=sys.stderr, flush=True)


def _holes(connection: Connection, part: Range, declared: list[range]) -> tuple[Holes, int]:
    """Return what is not in the log, and the first offset that was not purged.

    What is ``declared`` to be left out is none of it.

    That is read after the rows of each step: what has been purged meanwhile is below it.
    """
    holes = Holes()
    floor = _floor(connection, part)
    first = max(part.first, floor)
    while first < part.end:
        end = min(first + STEP, part.end)
        rows = fetch(
            connection,
            "SELECT `offset` FROM `ems_msg`"
            " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s",
            [part.partition_id, first, end],
        )
        floor = _floor(connection, part)
        there = {offset for (offset,) in rows}
        holes.add(
            offset
            for offset in range(max(first, floor), end)
            if offset not in there and not any(offset in one for one in declared)
        )
        first = max(end, floor)
    return holes, floor


def _floor(connection: Connection, part: Range) -> int:
    rows = fetch(
        connection,
        "SELECT `first_offset` FROM `ems_partition` WHERE `id` = %s",
        [part.partition_id],
    )
    # The partition of a topic that was deleted is gone with all its messages.
    return int(rows[0][0]) if rows else part.end

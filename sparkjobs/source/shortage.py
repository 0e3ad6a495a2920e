"""Says what is wrong when a range of offsets has fewer rows than offsets.

The offsets of a log are dense, so every row that is not there was purged, or is missing: after a
TRUNCATE, a DELETE by hand or a restore of a part of the tables.
"""

from __future__ import annotations

import sys

from sparkjobs.database import Connection, fetch
from sparkjobs.errors import Missing, Purged
from sparkjobs.source.request import SKIP, Request
from sparkjobs.source.splits import Range


def check(connection: Connection, request: Request, part: Range) -> None:
    """Raise Purged or Missing for a range that was read short, unless the request skips that.

    first_offset is read after the rows: what has been purged meanwhile is below it.
    """
    there = {
        offset
        for (offset,) in fetch(
            connection,
            "SELECT `offset` FROM `ems_msg`"
            " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s",
            [part.partition_id, part.first, part.end],
        )
    }
    floors = fetch(
        connection,
        "SELECT `first_offset` FROM `ems_partition` WHERE `id` = %s",
        [part.partition_id],
    )
    # The partition of a topic that was deleted is gone with all its messages.
    floor = floors[0][0] if floors else part.end
    where = f"{part.topic}/{part.number}"
    if floor > part.first and request.purged != SKIP:
        raise Purged(
            f"{where}: offsets before {floor} were purged while"
            f" {part.first} … {part.end - 1} were read: read again from there"
        )
    holes = [offset for offset in range(max(floor, part.first), part.end) if offset not in there]
    if holes and request.holes != SKIP:
        raise Missing(f"{where}: {_told(holes)}; with holes=skip the rest is read")
    if holes:
        print(f"ems: {where}: {_told(holes)}: skipped", file=sys.stderr, flush=True)


def _told(holes: list[int]) -> str:
    """Return how many offsets are missing, and the first run of them."""
    last = holes[0]
    for offset in holes:
        if offset > last + 1:
            break
        last = offset
    first = f"{holes[0]}" if last == holes[0] else f"{holes[0]} … {last}"
    then = ", …" if last != holes[-1] else ""
    what = "1 offset is" if len(holes) == 1 else f"{len(holes):,} offsets are"
    return f"{what} not in the log: {first}{then}"

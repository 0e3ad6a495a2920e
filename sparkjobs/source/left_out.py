"""Finds the offsets that a log leaves out since it was rewound: no message was lost there."""

from __future__ import annotations

from collections.abc import Iterator

from sparkjobs.database import Connection, fetch


def left_out(connection: Connection, partition_id: int, offsets: range) -> list[range]:
    """Return which of ``offsets`` a partition leaves out, as they rise."""
    rows = fetch(
        connection,
        "SELECT `first_offset`, `next_offset` FROM `ems_rewind` WHERE `partition_id` = %s"
        " ORDER BY `first_offset`",
        [partition_id],
    )
    parts = (range(max(first, offsets.start), min(end, offsets.stop)) for first, end in rows)
    return [part for part in parts if part]


def kept(connection: Connection, partition_id: int, offsets: range) -> Iterator[range]:
    """Yield the parts of ``offsets`` that a partition does not leave out; one at least."""
    start = offsets.start
    for part in left_out(connection, partition_id, offsets):
        if start < part.start:
            yield range(start, part.start)
        start = part.stop
    yield range(start, offsets.stop)

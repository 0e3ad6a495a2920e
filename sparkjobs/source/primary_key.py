"""Finds where ranges of offsets lie in the primary key, and whether to read them there.

To read by the index of offsets costs the server a look into the primary key for each row. A scan
of the primary key costs a tenth of that, and also passes rows that nobody has asked for. So it
pays where enough of the ids between the first and the last wanted row are wanted.

Nothing here decides which rows are read: ids only say where most of them are. The rest, for
example delayed messages, is read by the index of offsets, and the density of the offsets proves
that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import Connection, fetch, vendor_of
from sparkjobs.source.splits import Range, cut

# The least share of wanted rows among the ids of a scan. A row by the index of offsets costs the
# server some eight times as much, and sending those that are not wanted costs something, too.
SHARE = 0.3
# Offsets whose ids are looked up to know where a task's rows are.
SAMPLES = 32
# Of the samples, what may lie far away at either end: delayed messages have low ids.
OUTLIERS = 16
# Where ids are counted in steps, as in a cluster with several primaries, a scan passes fewer rows
# than ids: so many rows in a row are looked at, at so many places. Steps above the last are rare.
ROWS_IN_A_ROW, PLACES, STEP = 32, 4, 10
# The most ranges of one plan, as a bound of what it looks up and sends to the tasks.
PIECES = 50_000
LOOKUPS = 500

USE_LOG = {MYSQL: " FORCE INDEX (`ems_msg_log`)", SQLITE: ""}  # SQLite names unique indexes itself

Wanted = Mapping[int, Sequence[int]]


def span(connection: Connection, ranges: Sequence[Range]) -> Range | None:
    """Return the ids between which a scan reads most of these rows; None if it does not pay."""
    each = max(2, SAMPLES // len(ranges))
    wanted = {part.partition_id: samples(part, each) for part in ranges}
    found = sorted(ids_at(connection, wanted).values())
    if not found:
        return None
    rows = sum(part.rows for part in ranges)
    far = len(found) // OUTLIERS
    for low, high in ((found[0], found[-1]), (found[far], found[-1 - far])):
        if _pays(connection, rows, low, high):
            # Neighbours by offset may be a little apart by id: producers commit when they do.
            near = (high - low) // SAMPLES
            return Range(low - near, high + near + 1)
    return None


def _pays(connection: Connection, rows: int, low: int, high: int) -> bool:
    """Tell whether ``rows`` are enough of those that a scan from ``low`` to ``high`` passes."""
    passed: float = SHARE * (high - low + 1)
    if rows * STEP >= passed > rows:
        passed *= _rows_of_an_id(connection, low, high)
    return rows >= passed


def _rows_of_an_id(connection: Connection, low: int, high: int) -> float:
    """Return how many rows there are for an id between these, by samples; at most 1."""
    rows = ids = 0
    for place in range(PLACES):
        first = low + (high - low) * place // PLACES
        found = fetch(
            connection,
            "SELECT `id` FROM `ems_msg` WHERE `id` >= %s ORDER BY `id` LIMIT 1 OFFSET %s",
            [first, ROWS_IN_A_ROW - 1],
        )
        if found:
            rows += ROWS_IN_A_ROW
            ids += found[0][0] - first + 1
    return min(1.0, rows / ids) if ids else 1.0


def along(connection: Connection, ranges: Sequence[Range], rows: int) -> list[Range]:
    """Cut the ranges of many partitions, so that each task's rows lie together in the primary key.

    Returns the pieces in the order of their ids, or the ranges as they are where that does not
    pay. ``rows`` are those of a task.
    """
    asked = [part for part in ranges if part.rows > 0]
    total = sum(part.rows for part in asked)
    tasks = -(-total // rows)
    if tasks < 2 or len(asked) < 2:
        return asked
    count = min(tasks, PIECES // len(asked))
    if count < SHARE * tasks:
        return asked
    pieces = [list(cut(part, -(-part.rows // count))) for part in asked]
    wanted: dict[int, list[int]] = {}
    for piece in (piece for of_range in pieces for piece in of_range):
        wanted.setdefault(piece.partition_id, []).append(piece.first)
    found = ids_at(connection, wanted)
    ids = sorted(found.values())
    far = len(ids) // OUTLIERS
    if not ids or not _pays(connection, total, ids[far], ids[-1 - far]):
        return asked
    ordered: list[tuple[int, Range]] = []
    for of_range in pieces:
        reached = 0  # a delayed message at the beginning of a piece has a lower id than its piece
        for piece in of_range:
            reached = max(reached, found.get((piece.partition_id, piece.first), 0))
            ordered.append((reached, piece))
    return [piece for _, piece in sorted(ordered, key=lambda pair: pair[0])]


def ids_at(connection: Connection, wanted: Wanted) -> dict[tuple[int, int], int]:
    """Return (partition id, offset) → id of the messages that are there."""
    rows = looked_up(connection, "`partition_id`, `offset`, `id`", wanted)
    return {(partition_id, offset): id_ for partition_id, offset, id_ in rows}


def looked_up(connection: Connection, columns: str, wanted: Wanted) -> Iterator[Any]:
    """Yield these columns of single messages, as far as they are there; index: ems_msg_log."""
    hint = USE_LOG[vendor_of(connection)]
    for places in _in_chunks(wanted):
        where = " OR ".join(
            f"(`partition_id` = {partition_id} AND `offset` IN ({', '.join(map(str, offsets))}))"
            for partition_id, offsets in places
        )
        yield from fetch(connection, f"SELECT {columns} FROM `ems_msg`{hint} WHERE {where}")  # noqa: S608


def _in_chunks(wanted: Wanted) -> Iterator[list[tuple[int, Sequence[int]]]]:
    chunk: list[tuple[int, Sequence[int]]] = []
    room = LOOKUPS
    for partition_id, offsets in wanted.items():
        for start in range(0, len(offsets), LOOKUPS):
            part = offsets[start : start + LOOKUPS]
            if len(part) > room:
                yield chunk
                chunk, room = [], LOOKUPS
            chunk.append((partition_id, part))
            room -= len(part)
    if chunk:
        yield chunk


def samples(part: Range, count: int) -> list[int]:
    """Return offsets of a range at even distances, with the first and the last."""
    last = part.rows - 1
    return sorted({part.first + last * n // (count - 1) for n in range(count)})


def apart(ranges: Iterable[Range]) -> list[list[Range]]:
    """Return the ranges in groups that have one of each partition at most."""
    groups: list[dict[int, Range]] = []
    for part in ranges:
        group = next((g for g in groups if part.partition_id not in g), None)
        if group is None:
            groups.append(group := {})
        group[part.partition_id] = part
    return [list(group.values()) for group in groups]

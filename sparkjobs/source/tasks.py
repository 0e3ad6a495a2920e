"""Plans the tasks of a read: each about as many rows, and about as many bytes, as the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.types import StructType

from sparkjobs.database import Connection, fetch
from sparkjobs.source.primary_key import along, looked_up, samples
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.schemas import OF_BODIES
from sparkjobs.source.splits import Range, Split, cut, joined

# Bytes of the bodies of one task. With bodies of 1 KB, SPLIT_ROWS is less.
SPLIT_BYTES = 128 * 1024 * 1024
# Rows whose sizes are looked at, in all and of one range.
SAMPLES, SAMPLES_OF_RANGE = 2000, 16


def tasks(
    connection: Connection, request: SourceRequest, columns: StructType, ranges: Sequence[Range]
) -> list[Split]:
    """Return what each task reads of these ranges; ``columns`` says whether bodies are read."""
    if not request.is_log:
        has_bodies = bool(OF_BODIES & set(columns.names))
        size = _size_of_rows(connection, request, ranges) if has_bodies else 0
        most = max(1, min(request.split_rows, SPLIT_BYTES // max(1, size)))
        pieces = [piece for part in ranges for piece in _by_rows(connection, request, part, most)]
        planned = [Split((piece,)) for piece in pieces]
    else:
        rows = request.rows_of_a_task(sum(part.rows for part in ranges))
        sizes = _sizes(connection, ranges) if OF_BODIES & set(columns.names) else {}
        planned = pack(along(connection, ranges, rows), rows, sizes)
    return _at_most(request.connections, planned)


def pack(ranges: Sequence[Range], rows: int, sizes: dict[int, int] | None = None) -> list[Split]:
    """Return tasks of at most ``rows`` rows: long ranges are cut evenly, short ones share a task.

    The start of a task takes time: eight topics are read twice as fast in two tasks as in eight.
    ``sizes`` are the bytes of a body by partition: with larger ones a task has fewer rows.
    """
    splits: list[list[Range]] = []
    room = 0
    for whole in ranges:
        # A row that is larger than its share of a task's bytes counts as several.
        worth = max(1, -(-(sizes or {}).get(whole.partition_id, 0) * rows // SPLIT_BYTES))
        for part in cut(whole, max(1, rows // worth)):
            if part.rows * worth > room:
                splits.append([])
                room = rows
            splits[-1].append(part)
            room -= part.rows * worth
    return [Split(joined(parts)) for parts in splits]


def _by_rows(
    connection: Connection, request: SourceRequest, whole: Range, most: int
) -> Iterator[Range]:
    """Cut a range of ids into pieces of ``most`` rows; there may be few rows with ids far apart.

    The server walks along the primary key, and sends one id for each piece.
    """
    first = whole.first
    while first < whole.end:
        end = whole.end
        if whole.end - first > most:
            rows = fetch(
                connection,
                f"SELECT `id` FROM `{request.source.name}` WHERE `id` >= %s AND `id` < %s"  # noqa: S608
                " ORDER BY `id` LIMIT 1 OFFSET %s",
                [first, whole.end, most],
            )
            end = rows[0][0] if rows else whole.end
        yield Range(first, end)
        first = end


def _sizes(connection: Connection, ranges: Sequence[Range]) -> dict[int, int]:
    """Return the mean size of a body of each partition, by samples."""
    each = max(2, min(SAMPLES_OF_RANGE, SAMPLES // max(1, len(ranges))))
    wanted: dict[int, list[int]] = {}
    for part in ranges:
        wanted.setdefault(part.partition_id, []).extend(samples(part, each))
    sizes: dict[int, list[int]] = {}
    for partition_id, size in looked_up(connection, "`partition_id`, `size`", wanted):
        sizes.setdefault(partition_id, []).append(size)
    return {partition_id: sum(found) // len(found) for partition_id, found in sizes.items()}


def _size_of_rows(connection: Connection, request: SourceRequest, ranges: Sequence[Range]) -> int:
    """Return the mean size of a body of a table that is read by its ids, by samples."""
    sizes: list[int] = []
    for part in ranges:
        for n in range(SAMPLES_OF_RANGE):
            rows = fetch(
                connection,
                f"SELECT `size` FROM `{request.source.name}`"  # noqa: S608 - our name
                " WHERE `id` >= %s ORDER BY `id` LIMIT 1",
                [part.first + part.rows * n // SAMPLES_OF_RANGE],
            )
            sizes += [size for (size,) in rows]
    return sum(sizes) // max(1, len(sizes))


def _at_most(connections: int | None, planned: list[Split]) -> list[Split]:
    """Return the same in as many tasks at most: each task that runs has a connection."""
    if not connections or len(planned) <= connections:
        return planned
    count = len(planned)
    groups = [
        planned[count * n // connections : count * (n + 1) // connections]
        for n in range(connections)
    ]
    return [Split(joined(part for split in group for part in split.ranges)) for group in groups]

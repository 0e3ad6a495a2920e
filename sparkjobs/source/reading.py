"""Reads, in a task of the source, rows of the database into Arrow batches, bounded in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from sparkjobs.config import EVERY, Config
from sparkjobs.database import Connection, connect, fetch, stream
from sparkjobs.errors import Purged
from sparkjobs.instants import MICROSECONDS, microseconds
from sparkjobs.source.request import SKIP, Request
from sparkjobs.source.schemas import only
from sparkjobs.source.splits import Range, Split

BATCH_ROWS = 10_000
# The most bytes of the bodies of a batch: 10,000 of the largest messages would not fit into the
# memory of a worker.
BATCH_BYTES = 16 * 1024 * 1024

# Columns that are the same in all rows of a range of offsets.
CONSTANT: dict[str, Callable[[Range], Any]] = {
    "partition_id": lambda part: part.partition_id,
    "topic": lambda part: part.topic,
    "partition": lambda part: part.number,
}

Rows = list[tuple[Any, ...]]


def batches(
    config: Config, request: Request, columns: StructType, split: Split
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task; raises Purged if some were purged while it read."""
    if not split.ranges:
        return
    with closing(connect(config)) as connection:
        for part in split.ranges:
            yield from _read(connection, config.vendor, request, columns, part)


def _read(
    connection: Connection, vendor: str, request: Request, columns: StructType, part: Range
) -> Iterator[pa.RecordBatch]:
    constant = CONSTANT if request.is_log else {}
    sent = only(columns, *(name for name in columns.names if name not in constant))
    statement, values = _statement(connection, vendor, request, sent, part)
    found = 0
    for rows in _in_batches(stream(connection, statement, values), sent):
        found += len(rows)
        yield _batch(rows, columns, sent, part)
    if request.is_log and found < part.rows and request.purged != SKIP:
        _check_floor(connection, part)


def _statement(
    connection: Connection, vendor: str, request: Request, sent: StructType, part: Range
) -> tuple[str, list[Any]]:
    source = request.source
    where = [f"r.`{source.key}` >= %s", f"r.`{source.key}` < %s"]
    values: list[Any] = [part.first, part.end]
    if request.is_log:
        # In the order of the columns of the index.
        where.insert(0, "r.`partition_id` = %s")
        values.insert(0, part.partition_id)
    else:
        if foreign := _foreign(connection, request):
            where.append(f"r.`partition_id` NOT IN ({', '.join(map(str, foreign))})")
        if request.topic is not None:
            where.append(
                "r.`partition_id` IN (SELECT p2.`id` FROM `ems_partition` p2"
                " JOIN `ems_topic` t2 ON t2.`id` = p2.`topic_id` WHERE t2.`name` = %s)"
            )
            values.append(request.topic)
        for instant, comparison in ((request.since, ">="), (request.until, "<")):
            if instant is not None:
                at = MICROSECONDS[vendor].format(f"r.`{source.finished}`")
                where.append(f"{at} {comparison} %s")
                values.append(microseconds(instant))
    select = source.select(vendor, sent)
    return f"{select} WHERE {' AND '.join(where)} ORDER BY r.`{source.key}`", values


def _foreign(connection: Connection, request: Request) -> list[int]:
    """Return the partitions of other namespaces; usually there are none."""
    if request.namespace == EVERY:
        return []
    rows = fetch(
        connection,
        "SELECT p.`id` FROM `ems_partition` p"
        " LEFT JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE t.`id` IS NULL",
    )
    return [id_ for (id_,) in rows]


def _in_batches(chunks: Iterator[Sequence[tuple[Any, ...]]], sent: StructType) -> Iterator[Rows]:
    body = sent.names.index("body") if "body" in sent.names else None
    rows: Rows = []
    size = 0
    for chunk in chunks:
        rows.extend(chunk)
        if body is not None:
            size += sum([len(row[body]) for row in chunk])
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _batch(rows: Rows, columns: StructType, sent: StructType, part: Range) -> pa.RecordBatch:
    values = dict(zip(sent.names, zip(*rows, strict=True), strict=False))
    arrays = [
        _array(values[column.name], column)
        if column.name in values
        else pa.array([CONSTANT[column.name](part)] * len(rows), _type(column))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns.names)


def _array(values: Sequence[Any], column: StructField) -> pa.Array:
    if isinstance(column.dataType, BooleanType):
        return pa.array(values, pa.int64()).cast(pa.bool_())
    if column.name == "headers":  # some drivers give JSON as bytes
        values = [v.decode() if isinstance(v, bytes) else v for v in values]
    return pa.array(values, _type(column))


def _type(column: StructField) -> pa.DataType:
    if isinstance(column.dataType, TimestampType):
        return pa.timestamp("us", tz="UTC")
    return to_arrow_type(column.dataType)


def _check_floor(connection: Connection, part: Range) -> None:
    """Raise Purged if missing rows have been purged, which first_offset says; else it is a hole."""
    rows = fetch(
        connection,
        "SELECT `first_offset` FROM `ems_partition` WHERE `id` = %s",
        [part.partition_id],
    )
    if rows and rows[0][0] > part.first:
        raise Purged(
            f"{part.topic}/{part.number}: offsets before {rows[0][0]} were purged while"
            f" {part.first} … {part.end - 1} were read: read again from there"
        )

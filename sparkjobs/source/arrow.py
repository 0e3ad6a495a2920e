"""Makes Arrow batches of the rows that a task reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from sparkjobs.source.schemas import BODY_ERROR
from sparkjobs.source.splits import Range
from streams.rules.body import BODY_TYPES
from streams.rules.errors import DamagedBody
from streams.rules.stored_body import from_stored, logical_type

BATCH_ROWS = 10_000
# The most bytes of the bodies of a batch: they fit into the cache of a processor, and 10,000 of the
# largest messages would not fit into the memory of a worker.
BATCH_BYTES = 1024 * 1024

# Columns that are the same in all rows of a range of offsets, so that the database sends none.
CONSTANT: dict[str, Callable[[Range], Any]] = {
    "partition_id": lambda part: part.partition_id,
    "topic": lambda part: part.topic,
    "partition": lambda part: part.number,
}

Arrays = dict[str, pa.Array]
Rows = list[tuple[Any, ...]]


def arrays(chunks: Iterator[Sequence[tuple[Any, ...]]], sent: StructType) -> Iterator[Arrays]:
    """Yield the columns of the rows that a driver gives, in batches that are bounded in bytes."""
    for rows in _in_batches(chunks, sent):
        columns = zip(*rows, strict=True)
        yield {c.name: _array(values, c) for c, values in zip(sent, columns, strict=True)}


def with_logical_bodies(read: Arrays) -> Arrays:
    """Return the columns with bodies and their types as they were sent, see stored_body.py.

    A body that cannot be read is null, and then there is a column BODY_ERROR that says why.
    """
    if "body_type" not in read:
        return read
    types = read["body_type"]
    if pc.all(pc.is_in(types, value_set=pa.array(BODY_TYPES, types.type))).as_py():
        return read
    names = types.to_pylist()
    logical = pa.array(map(logical_type, names), types.type)
    if "body" not in read:
        return {**read, "body_type": logical}
    rows = zip(read["body"].to_pylist(), names, read["size"].to_pylist(), strict=True)
    errors: dict[int, str] = {}
    bodies = [_body(*row, at, errors) for at, row in enumerate(rows)]
    found = {**read, "body": pa.array(bodies, read["body"].type), "body_type": logical}
    if errors:
        found[BODY_ERROR] = pa.array(map(errors.get, range(len(bodies))), pa.string())
    return found


def _body(
    stored: bytes, stored_type: str, size: int, at: int, errors: dict[int, str]
) -> bytes | None:
    """Return the body of the row ``at``; None if it cannot be read, which ``errors`` gets."""
    try:
        if logical_type(stored_type) not in BODY_TYPES:
            raise DamagedBody(f"The stored body is of an unknown type: {stored_type!r}.")
        return from_stored(stored, stored_type, size)
    except DamagedBody as error:
        errors[at] = str(error)
        return None


def of_range(read: Arrays, columns: StructType, part: Range) -> pa.RecordBatch:
    """Return the batch of rows that are all of one range."""
    rows = len(next(iter(read.values())))
    whole = [
        read[column.name]
        if column.name in read
        else pa.array([CONSTANT[column.name](part)] * rows, type_of(column))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(whole, names=columns.names)


def of_ranges(
    read: Arrays, columns: StructType, ranges: Sequence[Range]
) -> tuple[pa.RecordBatch, Counter[int]]:
    """Return those rows that are in one of the ranges, and how many of each partition.

    ``ranges`` has one of each partition at most; ``read`` has their ids and the offsets.
    """
    at = pc.index_in(read["partition_id"], value_set=_each(ranges, "partition_id"))
    offset = read["offset"]
    wanted = pc.and_(
        pc.greater_equal(offset, _each(ranges, "first").take(at)),
        pc.less(offset, _each(ranges, "end").take(at)),
    )
    whole = [
        pa.array([CONSTANT[column.name](part) for part in ranges], type_of(column)).take(at)
        if column.name in ("topic", "partition")
        else read[column.name]
        for column in columns
    ]
    batch = pa.RecordBatch.from_arrays(whole, names=columns.names).filter(wanted)
    counted = pc.value_counts(read["partition_id"].filter(wanted))
    return batch, Counter({pair["values"]: pair["counts"] for pair in counted.to_pylist()})


def type_of(column: StructField) -> pa.DataType:
    if isinstance(column.dataType, TimestampType):
        return pa.timestamp("us", tz="UTC")
    return to_arrow_type(column.dataType)


def _each(ranges: Sequence[Range], name: str) -> pa.Array:
    return pa.array([getattr(part, name) for part in ranges], pa.int64())


def _in_batches(chunks: Iterator[Sequence[tuple[Any, ...]]], sent: StructType) -> Iterator[Rows]:
    size_of_body = sent.names.index("size") if "body" in sent.names else None
    rows: Rows = []
    size = 0
    for chunk in chunks:
        rows.extend(chunk)
        if size_of_body is not None:
            size += sum([row[size_of_body] for row in chunk])
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _array(values: Sequence[Any], column: StructField) -> pa.Array:
    if isinstance(column.dataType, BooleanType):
        return pa.array(values, pa.int64()).cast(pa.bool_())
    if column.name == "headers":  # some drivers give JSON as bytes
        values = [v.decode() if isinstance(v, bytes) else v for v in values]
    return pa.array(values, type_of(column))

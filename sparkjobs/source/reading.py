"""Reads, in a task of the source, rows of the database into Arrow batches, bounded in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from sparkjobs.config import EVERY, Config
from sparkjobs.database import Connection, connect, connected, fetch, stream
from sparkjobs.errors import UnreadableBody
from sparkjobs.instants import MICROSECONDS, microseconds
from sparkjobs.source import connector_x
from sparkjobs.source.arrow import (
    CONSTANT,
    Arrays,
    arrays,
    of_range,
    of_ranges,
    with_logical_bodies,
)
from sparkjobs.source.connector_x import address
from sparkjobs.source.primary_key import apart, span
from sparkjobs.source.replica import wait
from sparkjobs.source.request import FAILFAST, PERMISSIVE, SourceRequest
from sparkjobs.source.schemas import BODY, BODY_ERROR, LOADED, OF_BODIES, VALUE, only
from sparkjobs.source.shortage import check
from sparkjobs.source.splits import Range, Split

Where = list[tuple[str, Any]]  # a condition, its value


def batches(
    config: Config, request: SourceRequest, columns: StructType, split: Split
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, each once, in no order.

    Raises Purged if some were purged while it read, Missing if some are not in the log, and
    UnreadableBody.
    """
    if not split.ranges:
        return
    # Nothing proves that a replica has all rows of the other tables, which have no dense offsets.
    with closing(connect(config, replica=request.is_log)) as connection:
        task = Task(connection, config, request, columns)
        if not request.is_log:
            for part in split.ranges:
                yield from task.by_id(part)
            return
        if config.replica:
            wait(connection, split.ranges)
        for ranges in apart(split.ranges):
            yield from task.messages(ranges)


class Task:
    """One connection that reads one statement after the other."""

    def __init__(
        self, connection: Connection, config: Config, request: SourceRequest, columns: StructType
    ) -> None:
        self.connection = connection
        self.config = config
        self.vendor = config.vendor
        self.connector_x = address(config) if request.is_log else None
        self.request = request
        self.columns = columns

    def messages(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yield all messages of these ranges, of which each partition has one at most.

        A scan of the primary key gives those with ids in ``ids``, the index of offsets those with
        other ids. So no row comes twice, since an id does not change; and together they must be as
        many as the offsets.
        """
        ids = span(self.connection, ranges)
        found: Counter[int] = Counter()
        if ids is not None:
            scan = self._by_primary_key if len(ranges) == 1 else self._by_primary_key_of_many
            for batch, counted in scan(ranges, ids):
                found += counted
                if batch.num_rows:
                    yield batch
        for part in ranges:
            if found[part.partition_id] < part.rows:
                yield from self._by_offset(part, ids, found[part.partition_id])

    def by_id(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table that is read by its ids."""
        request, key = self.request, self.request.source.key
        where: Where = [(f"r.`{key}` >= %s", part.first), (f"r.`{key}` < %s", part.end)]
        if foreign := self._foreign():
            where.append((f"r.`partition_id` NOT IN ({', '.join(map(str, foreign))})", None))
        if request.topic is not None:
            of_topic = (
                "r.`partition_id` IN (SELECT p2.`id` FROM `ems_partition` p2"
                " JOIN `ems_topic` t2 ON t2.`id` = p2.`topic_id` WHERE t2.`name` = %s)"
            )
            where.append((of_topic, request.topic))
        for instant, comparison in ((request.since, ">="), (request.until, "<")):
            if instant is not None:
                at = MICROSECONDS[self.vendor].format(f"r.`{request.source.finished}`")
                where.append((f"{at} {comparison} %s", microseconds(instant)))
        sent = _with_type(self.columns, request)
        for read in self._arrays(sent, where, request.source.index, [part]):
            yield of_range(read, self.columns, part)

    def _by_primary_key(
        self, ranges: Sequence[Range], ids: Range
    ) -> Iterator[tuple[pa.RecordBatch, Counter[int]]]:
        (part,) = ranges
        where = [*_between(ids), *_of(part)]
        for read in self._arrays(self._sent(), where, "PRIMARY", ranges):
            batch = of_range(read, self.columns, part)
            yield batch, Counter({part.partition_id: batch.num_rows})

    def _by_primary_key_of_many(
        self, ranges: Sequence[Range], ids: Range
    ) -> Iterator[tuple[pa.RecordBatch, Counter[int]]]:
        """Yield also batches without a row: the server compares only roughly, Arrow exactly."""
        sent = self._sent(also=("partition_id", "offset"))
        partitions = ", ".join(str(part.partition_id) for part in ranges)
        where: Where = [
            *_between(ids),
            ("r.`offset` >= %s", min(part.first for part in ranges)),
            ("r.`offset` < %s", max(part.end for part in ranges)),
            (f"r.`partition_id` IN ({partitions})", None),
        ]
        for read in self._arrays(sent, where, "PRIMARY", ranges):
            yield of_ranges(read, self.columns, ranges)

    def _by_offset(self, part: Range, ids: Range | None, found: int) -> Iterator[pa.RecordBatch]:
        where = _of(part)
        if ids is not None:
            # The index has the ids, too: the server looks up only those rows that are left.
            where.append((f"(r.`id` < {ids.first} OR r.`id` >= {ids.end})", None))
        for read in self._arrays(self._sent(), where, self.request.source.index, [part]):
            batch = of_range(read, self.columns, part)
            found += batch.num_rows
            yield batch
        if found < part.rows:
            self._check(part, found)

    def _check(self, part: Range, found: int) -> None:
        """Raise if there should be more rows: by what the primary has, not a replica."""
        if not self.config.replica:
            check(self.connection, self.request, part, found)
            return
        with connected(self.config) as primary:
            check(primary, self.request, part, found)

    def _sent(self, also: Sequence[str] = ()) -> StructType:
        """Return what the database sends of a message: at least one column, to be counted."""
        names = [name for name in self.columns.names if name in also or name not in CONSTANT]
        names += [name for name in also if name not in names]
        return _with_type(only(LOADED, *(names or ["offset"])), self.request)

    def _arrays(
        self, sent: StructType, where: Where, index: str, ranges: Sequence[Range]
    ) -> Iterator[Arrays]:
        select = self.request.source.select(self.vendor, sent, index)
        statement = f"{select} WHERE {' AND '.join(condition for condition, _ in where)}"
        values = [value for _, value in where if value is not None]
        if self.connector_x:
            read = connector_x.arrays(self.connector_x, statement, values, sent)
        else:
            read = arrays(stream(self.connection, statement, values), sent)
        for found in map(with_logical_bodies, read):
            if BODY in found:
                if BODY_ERROR not in found:
                    found[BODY_ERROR] = pa.nulls(len(found[BODY]), pa.string())
                elif self.request.mode == FAILFAST:
                    self._refuse(found, ranges)
                found[VALUE] = found[BODY]
            yield found

    def _refuse(self, found: Arrays, ranges: Sequence[Range]) -> None:
        """Raise UnreadableBody for the first body that cannot be read, of a row that is wanted."""
        for at in pc.indices_nonzero(found[BODY_ERROR].is_valid()).to_pylist():
            row = {name: found[name][at].as_py() for name in found}
            if place := self._place(row, ranges):
                raise UnreadableBody(
                    f"{place}: {row[BODY_ERROR].rstrip('.')}; with mode={PERMISSIVE} the body is"
                    " null, and the rest is read"
                )

    def _place(self, row: Mapping[str, Any], ranges: Sequence[Range]) -> str:
        """Return where a row is that has a body; nothing if it is in none of the ranges."""
        at = f"offset {row['offset']}"
        if not self.request.is_log:
            return f"{row['topic']}/{row['partition']}: {at} (dead letter {row['id']})"
        for part in ranges:
            same = row.get("partition_id", part.partition_id) == part.partition_id
            if same and part.first <= row["offset"] < part.end:
                return f"{part.topic}/{part.number}: {at} (message {row['message_id']})"
        return ""

    def _foreign(self) -> list[int]:
        """Return the partitions of other namespaces; usually there are none."""
        if self.request.namespace == EVERY:
            return []
        rows = fetch(
            self.connection,
            "SELECT p.`id` FROM `ems_partition` p"
            " LEFT JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE t.`id` IS NULL",
        )
        return [id_ for (id_,) in rows]


def _with_type(columns: StructType, request: SourceRequest) -> StructType:
    """Return the columns, with those that a body needs: it may be compressed, or damaged."""
    names = [name for name in columns.names if name not in (VALUE, BODY_ERROR)]
    needed: tuple[str, ...] = ()
    if OF_BODIES & set(columns.names):
        place = ("message_id",) if request.is_log else ("topic", "partition", "id")
        needed = (BODY, "body_type", "size", "offset", *place)
    return only(request.source.schema, *names, *(name for name in needed if name not in names))


def _between(ids: Range) -> Where:
    return [("r.`id` >= %s", ids.first), ("r.`id` < %s", ids.end)]


def _of(part: Range) -> Where:
    return [
        ("r.`partition_id` = %s", part.partition_id),
        ("r.`offset` >= %s", part.first),
        ("r.`offset` < %s", part.end),
    ]

"""Reads the source "ems" as a stream: offsets of each partition, a read limit, availableNow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparkjobs.database import connected
from sparkjobs.errors import BadOption, Purged
from sparkjobs.source.reading import batches
from sparkjobs.source.request import LATEST, SKIP, Request
from sparkjobs.source.splits import Range, Split, logs, pack

# How far the stream is: the id of each partition, as a text → the next offset to read.
Offsets = dict[str, int]


class EmsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads with a new connection in each call: one left in a transaction would see no new rows."""

    def __init__(self, request: Request, schema: StructType) -> None:
        if not request.is_log:
            raise BadOption("only messages can be read as a stream")
        if request.bounds or request.start or request.end or request.since or request.until:
            raise BadOption("a stream has no bounds; say starting=earliest or latest")
        self.request = request
        self.config = request.configuration()
        self.columns = schema
        self.target: Offsets | None = None  # of a run of availableNow

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as below
        latest = self.request.starting == LATEST
        with connected(self.config) as connection:
            found = logs(connection, self.request.topic)
        return {str(log.id): log.end if latest else log.first for log in found}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self.request.max_rows is None:
            return ReadAllAvailable()
        return ReadMaxRows(self.request.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        ends = self.target if self.target is not None else self._ends()
        # A partition that was added since begins at 0; a deleted one stays where it was.
        waiting = {id_: max(0, end - start.get(id_, 0)) for id_, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            waiting = shared(waiting, limit.max_rows)
        return {**start, **{id_: start.get(id_, 0) + rows for id_, rows in waiting.items()}}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        return self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        with connected(self.config) as connection:
            found = {str(log.id): log for log in logs(connection, self.request.topic)}
        wanted = []
        for id_, last in end.items():
            first = start.get(id_, 0)
            if first >= last:
                continue
            if id_ not in found:
                raise BadOption(f"partition {id_} is gone: start with a new checkpoint")
            log = found[id_]
            if first < log.first:
                if id_ in start and self.request.purged != SKIP:
                    raise Purged(
                        f"{log.topic}/{log.number}: the stream is at offset {first}, those"
                        f" before {log.first} have been purged; purged=skip goes on from there"
                    )
                first = min(log.first, last)
            wanted.append(Range(first, last, log.id, log.topic, log.number))
        return pack(wanted, self.request.split_rows)

    def read(self, partition: Split) -> Iterator[Any]:
        return batches(self.config, self.request, self.columns, partition)

    def _ends(self) -> Offsets:
        with connected(self.config) as connection:
            return {str(log.id): log.end for log in logs(connection, self.request.topic)}


def shared(waiting: Offsets, rows: int) -> Offsets:
    """Share ``rows`` out, so that a long partition does not keep the others waiting.

    Beginning with the shortest, each partition gets an equal share of what is left. Returns how
    many rows each gets.
    """
    taken: Offsets = {}
    for id_ in sorted(waiting, key=lambda id_: (waiting[id_], id_)):
        # Rounded up, so that the stream moves even if the limit is below the number of partitions.
        share = -(-rows // (len(waiting) - len(taken)))
        taken[id_] = min(waiting[id_], share)
        rows -= taken[id_]
    return taken

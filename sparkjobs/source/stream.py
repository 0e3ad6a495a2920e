"""Reads the source "ems" as a stream: offsets of each partition, a read limit, availableNow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparkjobs.database import Connection, connected
from sparkjobs.errors import BadOption, MessagesPurged
from sparkjobs.instants import now
from sparkjobs.source.limits import Patience, shared, within_bytes
from sparkjobs.source.reading import batches
from sparkjobs.source.request import SKIP, SourceRequest
from sparkjobs.source.splits import Range, SourceLog, Split, offset_at, selected
from sparkjobs.source.tasks import tasks

# How far the stream is: the id of each partition, as a text → the next offset to read.
Offsets = dict[str, int]


class EmsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with a new connection for each call: an old transaction sees no new rows."""

    def __init__(self, request: SourceRequest, schema: StructType) -> None:
        if not request.is_log:
            raise BadOption("only messages can be read as a stream")
        if request.bounds or request.start is not None or request.end is not None:
            raise BadOption("bounds, start and end are for a batch: say startingOffsets")
        if request.until or request.selection.is_bounded:
            raise BadOption("a stream has no end: endingOffsets and the like are for a batch")
        self.request = request
        self.config = request.configuration()
        self.columns = schema
        self.target: dict[str, SourceLog] | None = None  # of a run of availableNow
        self.reached: Offsets = {}  # up to where the newest batch goes
        self.initial: Offsets | None = None  # where Spark has been told to begin
        self.began = False  # a batch was planned
        self.patience = Patience(request.selection.min_messages, request.selection.max_delay)
        self.served = 0  # the last partition that got one of fewer rows than there are partitions

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as below
        selection = self.request.selection
        with connected(self.config) as connection:
            found = selected(connection, self.request)
            selection.check_known({(log.topic, log.number) for log in found})
            if (since := self.request.newest_since) and since > now(connection):
                raise BadOption(f"startingTimestamp {since} is in the future")
            self.initial = {str(log.id): self._start(connection, log) for log in found}
        return self.initial

    def _start(self, connection: Connection, log: SourceLog) -> int:
        start = self.request.selection.start(log.topic, log.number, log.first, log.end)
        if since := self.request.since_of(log.topic, log.number):
            start = max(start, offset_at(connection, log, since))
        if start < log.first and self.request.purged != SKIP:
            raise MessagesPurged(
                f"{log.topic}/{log.number}: the stream is to begin at offset {start}, those before"
                f" {log.first} have been purged"
            )
        return max(start, log.first)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark knows limits of one kind only; latestOffset() keeps both.
        if self.request.selection.max_messages is not None:
            return ReadMaxRows(self.request.selection.max_messages)
        if self.request.selection.max_bytes is not None:
            return ReadMaxBytes(self.request.selection.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self._logs()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        found = self.target if self.target is not None else self._logs()
        skips = self.request.purged == SKIP
        if not skips:
            _check_all_there(start, found)
            _check_not_restored(start, found)
        begins, self.began = not self.began, True
        if begins and start == self.initial and self.request.selection.starts_at_end:
            # Spark asks for the first offset again if it repeats the first batch, and never keeps
            # it. So that one is empty, and writes into the checkpoint where the end of the log was.
            return start
        # A partition that was added since begins at 0; a deleted one stays where it was.
        places = {id_: start.get(id_, 0) for id_ in found}
        if skips:
            places = {
                id_: max(at, min(found[id_].first, found[id_].end)) for id_, at in places.items()
            }
        waiting = {id_: max(0, found[id_].end - at) for id_, at in places.items()}
        if self.target is None and not self.patience.is_worth(sum(waiting.values())):
            return start
        if not isinstance(limit, ReadAllAvailable):
            waiting = self._limited(places, waiting)
        self.reached = {**start, **places, **{id_: places[id_] + n for id_, n in waiting.items()}}
        return self.reached

    def _limited(self, start: Offsets, waiting: Offsets) -> Offsets:
        """Return how many messages of each partition fit into a batch."""
        waiting = {id_: rows for id_, rows in waiting.items() if rows}
        if waiting and self.request.selection.max_messages is not None:
            waiting = shared(waiting, self.request.selection.max_messages, self.served)
            self.served = int(list(waiting)[-1])
        if waiting and self.request.selection.max_bytes is not None:
            with connected(self.config) as connection:
                most = self.request.selection.max_bytes
                waiting = within_bytes(connection, start, waiting, most)
        return waiting

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        # Spark takes no metrics of sources that are written in Python, but shows what is returned
        # here in the progress of the query, as latestOffset.
        ends = {id_: log.end for id_, log in self._logs().items()}
        return {**ends, **behind(self.reached, ends)}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        self.reached, self.began = end, True
        with connected(self.config) as connection:
            wanted = self._wanted(connection, start, end)
            return tasks(connection, self.request, self.columns, wanted)

    def _wanted(self, connection: Connection, start: Offsets, end: Offsets) -> list[Range]:
        found = {str(log.id): log for log in selected(connection, self.request)}
        wanted = []
        for id_, last in end.items():
            first = start.get(id_, 0)
            if first >= last:
                continue
            if id_ not in found:
                if self.request.purged == SKIP:
                    continue
                raise _gone([id_])
            log = found[id_]
            if first < log.first:
                if self.request.purged != SKIP:
                    raise MessagesPurged(
                        f"{log.topic}/{log.number}: the stream is at offset {first}, those"
                        f" before {log.first} have been purged; purged=skip goes on from there"
                    )
                first = min(log.first, last)
            wanted.append(Range(first, last, log.id, log.topic, log.number))
        return wanted

    def read(self, partition: Split) -> Iterator[Any]:
        return batches(self.config, self.request, self.columns, partition)

    def _logs(self) -> dict[str, SourceLog]:
        with connected(self.config) as connection:
            return {str(log.id): log for log in selected(connection, self.request)}


def behind(reached: Offsets, ends: Offsets) -> dict[str, Any]:
    """Return how far the partitions are behind the ends of their logs, as Kafka's source names it.

    A partition of which nothing was read is behind by the offsets that it has had.
    """
    lags = [max(0, end - reached.get(id_, 0)) for id_, end in ends.items()]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }


def _check_all_there(start: Offsets, found: Mapping[str, SourceLog]) -> None:
    """Raise Purged if a partition of the checkpoint is not there: its messages may be unread."""
    if gone := sorted(set(start) - set(found), key=int):
        raise _gone(gone)


def _gone(ids: Sequence[str]) -> MessagesPurged:
    which = f"partition {ids[0]} is" if len(ids) == 1 else f"partitions {', '.join(ids)} are"
    return MessagesPurged(
        f"{which} gone, or not asked for: was a topic deleted? Use a new checkpoint; with"
        " failOnDataLoss=false the stream goes on without"
    )


def _check_not_restored(start: Offsets, found: Mapping[str, SourceLog]) -> None:
    """Raise Purged if a log ends before the place where the stream is in it."""
    for id_, log in found.items():
        if log.end < start.get(id_, 0):
            raise MessagesPurged(
                f"partition {id_} ends at offset {log.end}, and the stream is at {start[id_]}: was"
                " the database restored from a backup? Use a new checkpoint; with"
                " failOnDataLoss=false the stream waits until the log has grown so far"
            )

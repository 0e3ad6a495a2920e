"""Defines the writers of the sink "ems": what Spark calls in the tasks, and at their end.

    frame.write.format("ems").option("topic", "flights").mode("append").save()

Tasks stage their rows, and the end of the write sends them: see staging.py and commit.py.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from sparkjobs.database import connected
from sparkjobs.errors import BadOption
from sparkjobs.ledger import QUERY_ID
from sparkjobs.sink import columns
from sparkjobs.sink.commit import commit
from sparkjobs.sink.options import SinkOptions
from sparkjobs.sink.staging import Staged, forget, stage
from sparkjobs.sink.topics import writable


class _Writer:
    """What can be checked before there are rows; raises BadOption, BadRow."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.config = options.configuration()
        columns.check(schema, options)
        if overwrite:
            raise BadOption("messages are only ever added: write with append, not overwrite")
        if options.topic is not None:
            with connected(self.config) as connection:
                writable(connection, options.topic)

    def _stage(self, batches: Iterator[pa.RecordBatch], name: str) -> Staged:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        return stage(batches, self.config, self.options, name, number)

    def _commit(self, name: str, batch: int | None, messages: Sequence[Any]) -> None:
        parts = [part for part in messages if part is not None and part.rows]
        commit(self.config, name, batch, parts, self.options.dedup_window)

    def _abort(self, name: str) -> None:
        with connected(self.config) as connection:
            forget(connection, name)


class EmsWriter(_Writer, DataSourceArrowWriter):
    """The write of a DataFrame: all of it, or nothing."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        # Spark makes the writer once for a write, and gives it to all of its tasks.
        self.name = f"{self.config.prefix}write {uuid.uuid4()}"
        self.version: int | None = None
        if options.transaction is not None:
            app_id, self.version = options.transaction
            self.name = f"{self.config.prefix}app {app_id}{_of(options.topic)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator, self.name)

    def commit(self, messages: Sequence[Any]) -> None:
        self._commit(self.name, self.version, messages)

    def abort(self, messages: Sequence[Any]) -> None:
        self._abort(self.name)


class EmsStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writes of the batches of a stream, each once: the checkpoint has the id of the query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.transaction is not None:
            raise BadOption("txnAppId is for batch writes: a stream knows its batches by itself")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        query = task.getLocalProperty(QUERY_ID) if task is not None else None
        if not query:
            raise BadOption("Spark does not say which query this is: its batches could be doubled")
        staged = self._stage(iterator, name_of(query))
        staged.query = query
        return staged

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        for part in messages:
            if part is not None:
                self._commit(name_of(part.query), batchId, messages)
                break

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        for part in messages:
            if part is not None:
                self._abort(name_of(part.query))
                break


def _of(topic: str | None) -> str:
    """Return what tells the writes of one application to several topics apart in the ledger.

    It is hashed, since names in the ledger have at most 190 characters.
    """
    return "" if topic is None else f" {hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def name_of(query: str) -> str:
    """Return the name of a stream in the ledger."""
    return f"sink {query}"

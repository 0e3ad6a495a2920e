"""Collects the rows of a write in a table, from which they are sent all together.

A task writes its rows under a mark that no other attempt has. So whatever fails, is repeated or
runs twice leaves rows that nobody sends: only the attempts that Spark counts are sent.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from sparkjobs.config import Config
from sparkjobs.database import (
    NOW,
    Connection,
    connected,
    delete,
    execute,
    fetch,
    fitting,
    vendor_of,
)
from sparkjobs.errors import BadRow
from sparkjobs.instants import EPOCH, stored
from sparkjobs.placement import Placement
from sparkjobs.sink.columns import BODY, GIVEN
from sparkjobs.sink.options import SinkOptions
from sparkjobs.sink.topics import TargetTopic, setting, writable
from streams.rules import body as bodies
from streams.rules.dedup import hash_of
from streams.rules.errors import StreamsError
from streams.rules.message import check_size, headers_as_json
from streams.rules.names import MAX_TAG, validated_key, validated_name
from streams.rules.stored_body import to_stored

TABLE = "ems_monitoring_staged"
COLUMNS = (
    "`mark`, `topic_id`, `partition_id`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`,"
    " `size`, `dedup_hash`, `staged_at`"
)

# A body of at most so many bytes is written in hexadecimal, as in streams/database/sql/send.py.
HEX_BYTES = 64 * 1024
DELETE_ROWS = 10_000

# One row of a statement, with its parameters and its size in bytes.
Row = tuple[str, list[Any], int]


def prefix_of(name: str) -> str:
    """Return the beginning of the marks of a write, or of all batches of a stream."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@dataclass
class Staged(WriterCommitMessage):
    """What an attempt of a task has staged: its mark, how many rows, for which topics.

    ``query`` is the id of the streaming query, or "".
    """

    mark: str
    rows: int = 0
    query: str = ""
    topics: list[TargetTopic] = field(default_factory=list)


def stage(
    batches: Iterable[pa.RecordBatch], config: Config, options: SinkOptions, name: str, task: int
) -> Staged:
    """Write the rows of task number ``task`` into the table; raises BadRow for a bad one."""
    staged = Staged(prefix_of(name) + uuid.uuid4().hex[:16])
    with connected(config) as connection:
        checker = Checker(connection, config, options, staged.mark, task)
        rows = (row for batch in batches for row in checker.rows(batch))
        for chunk in fitting(rows, lambda row: row[2]):
            values = ", ".join(row[0] for row in chunk)
            statement = f"INSERT INTO `{TABLE}` ({COLUMNS}) VALUES {values}"  # noqa: S608 - below
            execute(connection, statement, [value for row in chunk for value in row[1]])
            staged.rows += len(chunk)
    staged.topics = [topic for topic, _choose in checker.topics.values()]
    return staged


class Checker:
    """The check of the rows of a task, which are written as SQL."""

    def __init__(
        self, connection: Connection, config: Config, options: SinkOptions, mark: str, task: int
    ) -> None:
        self.connection = connection
        self.vendor = vendor_of(connection)
        self.config = config
        self.options = options
        self.mark = mark
        self.task = task
        self.max_size = setting(connection, "msgMaxSizeInBytes")
        self.topics: dict[str, tuple[TargetTopic, Callable[..., int]]] = {}
        # Each task begins at another partition.
        self.turn = itertools.count(task)
        self.number = itertools.count()

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Yield the rows of a batch; raises BadRow, which says where the row is."""
        names = [name for name in batch.schema.names if name not in GIVEN]
        for name in set(batch.schema.names) - set(names):
            if batch.column(name).null_count < batch.num_rows:
                raise BadRow(f"task {self.task}: {name} is given to a message: it must be NULL")
        columns = [_values(batch.column(name), name) for name in names]
        names = ["body" if name in BODY else name for name in names]
        for values in zip(*columns, strict=True):
            number = next(self.number)
            try:
                yield self._row(dict(zip(names, values, strict=True)))
            except (BadRow, StreamsError) as error:
                raise BadRow(f"row {number} of task {self.task}: {error}") from error

    def _row(self, given: dict[str, Any]) -> Row:
        name = self.options.topic or given.get("topic")
        if name is None:
            raise BadRow("the topic is NULL")
        key = _key(given.get("key"), "key")
        tag = validated_name(given["tag"], "tag", MAX_TAG) if given.get("tag") else ""
        body, body_type = _body(given["body"], given.get("body_type") or self.options.body_type)
        headers = _headers(given.get("headers"))
        check_size(body, headers, self.max_size)
        due_at = _due(given.get("deliver_at"))
        dedup = _key(given.get("dedup_key"), "dedup key")
        topic, choose = self._topic(name)
        number = given.get("partition")
        if number is None:
            number = choose(key, headers, next(self.turn))
        elif not 0 <= number < len(topic.partitions):
            raise BadRow(f"{name!r} has no partition {number}, but {len(topic.partitions)}, from 0")
        parameters: list[Any] = [due_at, key, tag, headers]
        written, stored_type = to_stored(body, body_type)
        hexadecimal = len(written) <= HEX_BYTES
        if not hexadecimal:
            parameters.append(written)
        values = (
            f"('{self.mark}', {topic.id:d}, {topic.partitions[number]:d}, %s, %s, %s, %s,"
            f" {_hex(written) if hexadecimal else '%s'}, '{stored_type}', {len(body):d},"
            f" {_hex(hash_of(dedup)) if dedup is not None else 'NULL'}, {NOW[self.vendor]})"
        )
        return values, parameters, len(body) + len(headers or "")

    def _topic(self, name: str) -> tuple[TargetTopic, Callable[..., int]]:
        if name not in self.topics:
            topic = writable(self.connection, name)
            placement = Placement(name, len(topic.partitions), self.config.partitioner)
            self.topics[name] = topic, placement.partitioner()
        return self.topics[name]


def _values(column: Any, name: str) -> list[Any]:
    """Return a column as Python values, instants as microseconds."""
    return (column.cast(pa.int64()) if name == "deliver_at" else column).to_pylist()  # type: ignore[no-any-return]


def _key(value: str | int | None, what: str) -> str | None:
    return None if value is None else validated_key(value, what)


def _body(value: str | bytes | None, body_type: str | None) -> tuple[bytes, str]:
    """Return the bytes to store and their type.

    Without ``body_type`` a string is a text and a binary is bytes, as in a send. NULL is the null
    of JSON.
    """
    if value is None:
        if body_type not in (None, bodies.JSON):
            raise BadRow(f"the body is NULL, which is not {body_type}")
        return b"null", bodies.JSON
    raw = value.encode() if isinstance(value, str) else value
    if body_type is None:
        return raw, bodies.TEXT if isinstance(value, str) else bodies.BYTES
    bodies.check_encoded(raw, body_type)
    return raw, body_type


def _headers(value: str | Sequence[tuple[str, str | None]] | None) -> str | None:
    """Return headers as they are stored; they are given as a map, or as JSON themselves."""
    if value is None:
        return None
    try:
        return headers_as_json(json.loads(value) if isinstance(value, str) else dict(value))
    except json.JSONDecodeError as error:
        raise BadRow(f"the headers are not JSON: {error}") from error


def _due(microseconds: int | None) -> str | None:
    """Return the time of a message as it is stored, None for one that is past long ago."""
    if microseconds is None or microseconds <= 0:
        return None
    try:
        return str(stored(EPOCH + timedelta(microseconds=microseconds)))
    except OverflowError as error:
        raise BadRow("deliver_at is out of range") from error


def _hex(value: bytes) -> str:
    return f"x'{value.hex()}'"


def forget(connection: Connection, name: str) -> None:
    """Delete the rows of all attempts of a write, or of all batches of a stream."""
    prefix = prefix_of(name)
    ids = f"SELECT `id` FROM `{TABLE}` WHERE `mark` >= %s AND `mark` < %s LIMIT %s"  # noqa: S608
    while rows := fetch(connection, ids, [prefix, f"{prefix}g", DELETE_ROWS]):
        delete(connection, TABLE, [id_ for (id_,) in rows])

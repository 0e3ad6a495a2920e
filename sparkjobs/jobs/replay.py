"""Send archived messages again: all of some days of a topic, or none, and only once.

The messages are collected in a staging table and compared with the manifest. Then one transaction
puts them into the inbox of the target topic and records the replay in the ledger. Body, body type,
key, tag and headers do not change; offsets, ids and times are new, and the producer says where each
message was: ``replay@flights/0@17``.
"""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkjobs.archive.manifest import fingerprints, in_archive, recorded
from sparkjobs.config import Config
from sparkjobs.database import NOW, Connection, connected, execute, fetch, transaction, vendor_of
from sparkjobs.errors import ArchiveDiffers, BadOption
from sparkjobs.ledger import take
from sparkjobs.lock import alone
from sparkjobs.placement import Placement
from sparkjobs.session import session
from sparkjobs.source.splits import logs, offset_at

STAGED = (
    *("replay", "source", "offset", "target"),
    *("key", "tag", "headers", "body", "body_type", "size"),
)
# The most rows and bytes of one statement: far below the smallest max_allowed_packet. Only a single
# message may be larger.
STATEMENT_ROWS = 500
STATEMENT_BYTES = 2 * 1024 * 1024
DELETE_ROWS = 10_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", help="whose messages")
    parser.add_argument("since", type=date.fromisoformat, help="the first day, in UTC")
    parser.add_argument("until", type=date.fromisoformat, help="the last day")
    parser.add_argument("--to", help="the topic to send them to, else the same")
    parser.add_argument("--name", help="of the replay, to do the same once more on purpose")


def run(config: Config, options: Namespace) -> int:
    target = options.to or options.topic
    days = (options.since, options.until)
    with connected(config) as connection:  # before Spark starts
        if not recorded(connection, config, options.topic, *days):
            _check_archived(connection, options.topic, *days)
            raise nothing_archived(options.topic, *days)
    print(replay(session("replay"), config, options.topic, *days, target, options.name))
    return 0


def replay(
    spark: SparkSession,
    config: Config,
    topic: str,
    since: date,
    until: date,
    target: str,
    name: str | None = None,
) -> str:
    """Send the messages of these days, both included, to ``target``; return a line that says so.

    It may be killed and run again. Raises Busy, BadOption, ArchiveDiffers.
    """
    name = f"replay {name or f'{topic} {since} {until} to {target}'}"[:190]
    # The ledger serves all namespaces.
    entry = (config.prefix + name)[:190]
    mark = hashlib.sha256(entry.encode()).hexdigest()[:32]
    with alone(config, mark):
        with connected(config) as connection:
            if _is_done(connection, entry):
                return f"{name}: was done before"
            partitions = _partitions(connection, target)
            placement = Placement(target, len(partitions), config.partitioner)
            placement.partitioner()  # before anything is read: it may not be here
            parts = recorded(connection, config, topic, since, until)
            _check_archived(connection, topic, since, until)
            if not parts:
                raise nothing_archived(topic, since, until)
            _forget(connection, mark)
        days = sorted({part.day for part in parts})
        messages = in_archive(spark, config, [topic], days)
        for day in days:
            of_day = {
                (topic, part.partition_id): found
                for part, found in parts.items()
                if part.day == day
            }
            if fingerprints(in_archive(spark, config, [topic], [day])) != of_day:
                raise ArchiveDiffers(f"the files of {topic} {day} are not what was archived")
        expected = sum(found.messages for found in parts.values())
        if (staged := stage(messages, config, mark, placement)) != expected:
            raise ArchiveDiffers(f"{expected:,} messages were archived, {staged:,} are there")
        with connected(config) as connection:
            with transaction(connection):
                done = take(connection, entry) and _send(connection, mark, topic, partitions)
            _forget(connection, mark)
    return f"{name}: {done:,} messages sent" if done else f"{name}: was done before"


def nothing_archived(topic: str, since: date, until: date) -> BadOption:
    return BadOption(f"nothing of {topic} from {since} to {until} is in the archive")


def stage(messages: DataFrame, config: Config, mark: str, placement: Placement) -> int:
    """Collect the messages in the staging table, each once, however often a task runs.

    Returns how many there are.
    """
    staging = partial(stage_batches, config=config, mark=mark, placement=placement)
    messages.mapInArrow(staging, "rows long").write.format("noop").mode("overwrite").save()
    with connected(config) as connection:
        count = "SELECT COUNT(*) FROM `ems_monitoring_replay` WHERE `replay` = %s"
        return int(fetch(connection, count, [mark])[0][0])


def stage_batches(
    batches: Iterator[pa.RecordBatch], config: Config, mark: str, placement: Placement
) -> Iterator[pa.RecordBatch]:
    """Write the batches of one task into the staging table; yield the number of rows."""
    with connected(config) as connection:
        rows = 0
        for batch in batches:
            for chunk in _chunks(_staged(batch, mark, placement)):
                values = ", ".join(["(" + ", ".join(["%s"] * len(STAGED)) + ")"] * len(chunk))
                names = ", ".join(f"`{name}`" for name in STAGED)
                execute(
                    connection,
                    f"REPLACE INTO `ems_monitoring_replay` ({names}) VALUES {values}",  # noqa: S608
                    [value for row in chunk for value in row],
                )
                rows += len(chunk)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _staged(batch: pa.RecordBatch, mark: str, placement: Placement) -> Iterator[Sequence[Any]]:
    partition_of = placement.partitioner()
    for row in batch.to_pylist():
        target = partition_of(row["key"], row["headers"], row["partition"])
        message = (row[name] for name in STAGED[4:])
        yield mark, row["partition"], row["offset"], target, *message


def _chunks(rows: Iterator[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    chunk: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        length = row[STAGED.index("size")]
        if chunk and (len(chunk) >= STATEMENT_ROWS or size + length > STATEMENT_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk


def _send(connection: Connection, mark: str, topic: str, partitions: list[int]) -> int:
    """Insert the messages into the inbox, in their old order, inside a transaction.

    Returns how many there are.
    """
    now = NOW[vendor_of(connection)]
    return sum(
        execute(
            connection,
            "INSERT INTO `ems_msg` (`partition_id`, `due_at`, `key`, `tag`, `headers`, `body`,"  # noqa: S608
            " `body_type`, `size`, `producer`, `created_at`)"
            " SELECT %s, '1970-01-01 00:00:00', s.`key`, s.`tag`, s.`headers`, s.`body`,"
            f" s.`body_type`, s.`size`, {_producer(connection)}, {now}"
            " FROM `ems_monitoring_replay` s WHERE s.`replay` = %s AND s.`target` = %s"
            " ORDER BY s.`source`, s.`offset`",
            [partition_id, f"replay@{topic}/", mark, number],
        )
        for number, partition_id in enumerate(partitions)
    )


def _producer(connection: Connection) -> str:
    if vendor_of(connection) == "sqlite":
        return "%s || s.`source` || '@' || s.`offset`"
    return "CONCAT(%s, s.`source`, '@', s.`offset`)"


def _is_done(connection: Connection, name: str) -> bool:
    statement = "SELECT 1 FROM `ems_monitoring_ledger` WHERE `name` = %s"
    return bool(fetch(connection, statement, [name]))


def _partitions(connection: Connection, target: str) -> list[int]:
    """Return the ids of the target's partitions, in order of their numbers; raises BadOption."""
    rows = fetch(
        connection,
        "SELECT p.`id` FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
        " WHERE t.`name` = %s AND t.`access` IN ('read-write', 'write-only') ORDER BY p.`number`",
        [target],
    )
    if not rows:
        raise BadOption(f"there is no topic {target!r} that may be written to")
    return [row[0] for row in rows]


def _check_archived(connection: Connection, topic: str, since: date, until: date) -> None:
    """Check that all messages of these days are in the archive; raises BadOption."""
    midnight = datetime.fromisoformat(f"{until}T00:00:00+00:00") + timedelta(days=1)
    names = fetch(connection, "SELECT `id` FROM `ems_topic` t WHERE `name` = %s", [topic])
    for log in logs(connection, topic) if names else []:
        statement = "SELECT `archived_offset` FROM `ems_partition` WHERE `id` = %s"
        ((archived,),) = fetch(connection, statement, [log.id])
        start = datetime.fromisoformat(f"{since}T00:00:00+00:00")
        first = max(log.first, offset_at(connection, log, start))
        end = offset_at(connection, log, midnight)
        if first < end and archived < end:
            raise BadOption(f"{topic}/{log.number} is archived to offset {archived}, not to {end}")


def _forget(connection: Connection, mark: str) -> None:
    """Delete the messages of this replay from the staging table, in batches, by its index."""
    table = "`ems_monitoring_replay`"
    ids = f"SELECT `id` FROM {table} WHERE `replay` = %s ORDER BY `source`, `offset` LIMIT %s"  # noqa: S608
    while rows := fetch(connection, ids, [mark, DELETE_ROWS]):
        places = ", ".join(["%s"] * len(rows))
        execute(connection, f"DELETE FROM {table} WHERE `id` IN ({places})", [r[0] for r in rows])  # noqa: S608

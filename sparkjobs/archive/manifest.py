"""Reads the archive, Parquet by day and topic, and its manifest in the database.

Only what the manifest names is in the archive. A run that was killed may leave files of a day that
were not compared, which the next run replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs import storage
from sparkjobs.config import Config
from sparkjobs.database import NOW, Connection, execute, fetch, vendor_of
from sparkjobs.errors import BadConfig
from sparkjobs.source.schemas import MESSAGES


@dataclass(frozen=True)
class DayPart:
    """One day of one partition: offsets ``first`` … ``end`` - 1."""

    partition_id: int
    topic: str
    number: int
    day: date
    first: int
    end: int


@dataclass(frozen=True)
class Fingerprint:
    """Enough to tell that two sets of messages are the same, in any order."""

    messages: int = 0
    bytes: int = 0
    hash: str = "0"


Fingerprints = dict[tuple[str, int], Fingerprint]


def fingerprints(messages: DataFrame) -> Fingerprints:
    """Return the fingerprint of each partition's messages, by topic and partition id."""
    rows = messages.groupBy("topic", "partition_id").agg(*_marks()).collect()
    return {(row[0], row[1]): Fingerprint(*row[2:]) for row in rows}


def observed(messages: DataFrame) -> tuple[DataFrame, Callable[[], Fingerprint]]:
    """Return the messages, and a function that tells the fingerprint of all that were written.

    Call it when they are written. A task that ran twice counts twice: a difference is not proof.
    """
    observation = Observation()

    def seen() -> Fingerprint:
        found = observation.get
        return Fingerprint(found["messages"], found["bytes"] or 0, found["hash"] or "0")

    return messages.observe(observation, *_marks()), seen


def total(marks: Collection[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of all messages together: each part of it is a sum."""
    return Fingerprint(
        sum(mark.messages for mark in marks),
        sum(mark.bytes for mark in marks),
        str(sum(int(mark.hash) for mark in marks)),
    )


def _marks() -> list[Column]:
    columns = [F.col(name) for name in MESSAGES.names]
    # The hash ignores nulls: without their places, a key could become a tag with the same hash.
    row = F.xxhash64(*columns, *(column.isNull() for column in columns))
    return [
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum(row.cast("decimal(38,0)")).cast("string").alias("hash"),
    ]


def in_archive(
    spark: SparkSession, config: Config, topics: Iterable[str], days: Iterable[date]
) -> DataFrame:
    """Return the messages of these topics on these days, as they are in the files.

    A day without messages has no folder.
    """
    root = folder(config)
    chosen = [storage.place(day, topic) for day in sorted(days) for topic in sorted(topics)]
    there = [path for path in chosen if storage.exists(spark, f"{root}/{path}")]
    return storage.read(spark, root, there).select(*MESSAGES.names)


def folder(config: Config) -> str:
    """Return the folder or URL of the archive; raises BadConfig if it is not configured."""
    if not config.archive:
        raise BadConfig(
            "no place of the archive is configured: name a folder or URL in EMS['ARCHIVE'] of"
            " Django's settings, or as archive= under [ems] of the option file"
        )
    # Spark leaves out folders that begin with "_" where it reads the one above: another column
    # there, or a topic twice, would be an error or another result.
    below = f"/_shards/database={storage.escaped(config.shard)}" if config.shard else ""
    # A namespace may have any name: that of the lake, too.
    below += f"/_namespaces/{config.namespace}" if config.prefix else ""
    return config.archive.rstrip("/") + below if below else config.archive


def is_own(config: Config, stored: str) -> bool:
    """Tell whether a topic of the manifest is of this namespace; others begin with a blank."""
    return stored.startswith(config.prefix or "") and bool(config.prefix) == stored.startswith(" ")


def recorded(
    connection: Connection, config: Config, topic: str, since: date, until: date
) -> dict[DayPart, Fingerprint]:
    """Return what the manifest says of a topic, from ``since`` to ``until``, both included."""
    rows = fetch(
        connection,
        "SELECT `partition_id`, `topic`, `number`, `day`, `first_offset`, `end_offset`,"
        " `messages`, `bytes`, `hash` FROM `ems_monitoring_archive`"
        " WHERE `topic` = %s AND `day` >= %s AND `day` <= %s ORDER BY `day`, `number`",
        [config.prefix + topic, since.isoformat(), until.isoformat()],
    )
    return {
        DayPart(id_, topic, number, _day(day), first, end): Fingerprint(messages, size, hash_)
        for id_, _name, number, day, first, end, messages, size, hash_ in rows
    }


def record(
    connection: Connection, config: Config, part: DayPart, found: Fingerprint, path: str
) -> bool:
    """Record in the manifest that a part is archived, so that it may be purged.

    Call it inside a transaction. Returns False if another run has moved archived_offset meanwhile.
    """
    moved = execute(
        connection,
        "UPDATE `ems_partition` SET `archived_offset` = %s WHERE `id` = %s"
        " AND `archived_offset` <= %s",
        [part.end, part.partition_id, part.first],
    )
    execute(
        connection,
        "INSERT INTO `ems_monitoring_archive` (`partition_id`, `topic`, `number`, `day`,"  # noqa: S608
        " `first_offset`, `end_offset`, `messages`, `bytes`, `hash`, `path`, `archived_at`)"
        f" VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, {NOW[vendor_of(connection)]})",
        [
            *(part.partition_id, config.prefix + part.topic, part.number, part.day.isoformat()),
            *(part.first, part.end, found.messages, found.bytes, found.hash, path),
        ],
    )
    return moved == 1


def _day(value: date | str) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else value

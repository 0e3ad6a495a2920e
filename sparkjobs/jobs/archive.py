"""Archive the closed days of the topics that are set to it: Parquet by date and topic.

A day is written, read again and compared with the database by count and hash. Then it is recorded
in the manifest and archived_offset moves, in one transaction. Only after that it may be purged.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs.archive.manifest import (
    Fingerprint,
    Fingerprints,
    Part,
    fingerprints,
    folder,
    in_archive,
    record,
    recorded,
)
from sparkjobs.config import Config
from sparkjobs.database import (
    FOR_UPDATE,
    Connection,
    connected,
    fetch,
    transaction,
    vendor_of,
)
from sparkjobs.errors import ArchiveDiffers, BadOption, Busy
from sparkjobs.instants import EPOCH, MICROSECONDS, now
from sparkjobs.lock import alone
from sparkjobs.session import session
from sparkjobs.source.splits import Log, logs, offset_at

# How long after midnight a day is closed. A pass of the sequencer may have read the clock before it
# got its lock, and could still write times of yesterday before that.
CLOSED_AFTER = timedelta(minutes=10)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--until", type=date.fromisoformat, help="the last day (YYYY-MM-DD, UTC), else yesterday"
    )


def run(config: Config, options: Namespace) -> int:
    folder(config)  # before Spark starts
    for line in archive(session("archive"), config, options.until):
        print(line, flush=True)
    return 0


def archive(spark: SparkSession, config: Config, until: date | None = None) -> Iterator[str]:
    """Archive what is closed and not archived yet, day by day; yield lines that say what was done.

    It may be killed and run again. Raises Busy, BadOption, ArchiveDiffers.
    """
    with alone(config, "archive") as still_alone:
        with connected(config) as connection:
            yesterday = _yesterday(connection)
            if until and until > yesterday:
                raise BadOption(f"{until} is not closed: the last day that is, is {yesterday}")
            parts = list(closed_parts(connection, until or yesterday))
        days = groupby(sorted(parts, key=lambda part: part.day), key=lambda part: part.day)
        for day, of_day in days:
            yield from _archive_day(spark, config, day, list(of_day), still_alone)
        if not parts:
            yield "nothing to archive"


def closed_parts(connection: Connection, until: date) -> Iterator[Part]:
    """Yield what is to be archived up to ``until``, day by day: offsets rise with time."""
    rows = fetch(
        connection,
        "SELECT p.`id`, p.`archived_offset` FROM `ems_partition` p"
        " JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE t.`archive` = %s",
        [True],
    )
    archived = dict(rows)
    for log in logs(connection):
        if log.id not in archived:
            continue
        log = _locked(connection, log)
        first, closed = max(archived[log.id], log.first), offset_at(connection, log, _after(until))
        while first < closed:
            day = _day_at(connection, log, first)
            end = min(closed, offset_at(connection, log, _after(day)))
            yield Part(log.id, log.topic, log.number, day, first, end)
            first = end


def _archive_day(
    spark: SparkSession,
    config: Config,
    day: date,
    parts: list[Part],
    still_alone: Callable[[], None],
) -> Iterator[str]:
    with connected(config) as connection:
        for part in parts:
            # The files of a topic and a day are written by one run, and replaced as a whole.
            if other := recorded(connection, config, part.topic, day, day):
                raise ArchiveDiffers(f"{part.topic} of {day} is in the archive: {[*other]}")
    written = from_database(spark, config, parts).withColumn("date", F.lit(day.isoformat()))
    still_alone()
    (
        written.write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("date", "topic")
        .parquet(folder(config))
    )
    expected = fingerprints(from_database(spark, config, parts))
    topics = {part.topic for part in parts}
    there = fingerprints(in_archive(spark, config, topics, [day]))
    path = f"{folder(config)}/date={day}"
    for topic, of_topic in groupby(sorted(parts, key=_place), key=lambda part: part.topic):
        yield _record_topic(
            config, list(of_topic), _only(topic, expected), _only(topic, there), path
        )


def _only(topic: str, found: Fingerprints) -> dict[int, Fingerprint]:
    """Return the fingerprints of one topic, by partition id."""
    return {id_: mark for (name, id_), mark in found.items() if name == topic}


def from_database(spark: SparkSession, config: Config, parts: Iterable[Part]) -> DataFrame:
    """Return the messages of these parts, read again from the database."""
    bounds = {part.partition_id: [part.first, part.end] for part in parts}
    # What is not in the log is counted, see _record_topic: the rest of the day is archived.
    reader = spark.read.format("ems").options(config=config.path, holes="skip")
    return reader.option("bounds", json.dumps(bounds)).load()


def _record_topic(
    config: Config,
    parts: list[Part],
    expected: dict[int, Fingerprint],
    there: dict[int, Fingerprint],
    path: str,
) -> str:
    """Compare, and if all is equal, record all partitions of a topic; else raise ArchiveDiffers."""
    about = f"{parts[0].topic} {parts[0].day}"
    if there != expected:
        raise ArchiveDiffers(f"{about}: the database has {expected}, {path} has {there}")
    with connected(config) as connection, transaction(connection):
        for part in parts:
            mark = there.get(part.partition_id, Fingerprint())
            if not record(connection, config, part, mark, path):
                raise Busy(f"{about}: archived_offset was moved by somebody else")
    messages = sum(mark.messages for mark in there.values())
    missing = sum(part.end - part.first for part in parts) - messages
    holes = f", {missing:,} offsets are not in the log: run reconcile" if missing else ""
    return f"{about}: {messages:,} messages archived{holes}"


def _locked(connection: Connection, log: Log) -> Log:
    """Return the log after every pass that began before now: its end is read under the lock."""
    with transaction(connection):
        lock = FOR_UPDATE[vendor_of(connection)]
        ((first, end),) = fetch(
            connection,
            f"SELECT `first_offset`, `next_offset` FROM `ems_partition` WHERE `id` = %s {lock}",  # noqa: S608
            [log.id],
        )
    return Log(log.id, log.topic, log.number, first, end)


def _yesterday(connection: Connection) -> date:
    return (now(connection) - CLOSED_AFTER).date() - timedelta(days=1)


def _day_at(connection: Connection, log: Log, offset: int) -> date:
    """Return the day of the first message at this offset or after it."""
    at = MICROSECONDS[vendor_of(connection)].format("`sequenced_at`")
    ((since_epoch,),) = fetch(
        connection,
        f"SELECT {at} FROM `ems_msg` WHERE `partition_id` = %s AND `offset` >= %s"  # noqa: S608
        " ORDER BY `offset` LIMIT 1",
        [log.id, offset],
    )
    return (EPOCH + timedelta(microseconds=since_epoch)).date()


def _after(day: date) -> datetime:
    """Return the midnight that ends a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)


def _place(part: Part) -> tuple[str, int]:
    return part.topic, part.number

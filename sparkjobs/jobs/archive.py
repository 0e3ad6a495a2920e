"""Archive the closed days of the topics that are set to it: Parquet by date and topic.

A day is written, read again and compared with the database by count and hash. Then it is recorded
in the manifest and archived_offset moves, in one transaction. Only after that it may be purged. A
day that is in the lake is written from there, and its files leave the lake in that transaction. A
topic that cannot be archived does not keep the others from it.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs import storage
from sparkjobs.archive.manifest import (
    DayPart,
    Fingerprint,
    Fingerprints,
    fingerprints,
    folder,
    in_archive,
    observed,
    record,
    recorded,
    total,
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
from sparkjobs.errors import ArchiveDiffers, BadOption, Busy, NotArchived
from sparkjobs.instants import EPOCH, MICROSECONDS, now
from sparkjobs.lake.manifest import covers, of_day, retire_day, root
from sparkjobs.lock import alone
from sparkjobs.rollup.windows import Say, Window, one_window
from sparkjobs.session import session
from sparkjobs.source.left_out import kept
from sparkjobs.source.schemas import MESSAGES
from sparkjobs.source.splits import SourceLog, logs, offset_at

# How long after midnight a day is closed. A pass of the sequencer may have read the clock before it
# got its lock, and could still write times of yesterday before that.
CLOSED_AFTER = timedelta(minutes=10)
JOB = "archive"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--until", type=date.fromisoformat, help="the last day (YYYY-MM-DD, UTC), else yesterday"
    )


def run(config: Config, options: Namespace) -> int:
    folder(config)  # before Spark starts
    archive(session(JOB), config, options.until, partial(print, flush=True))
    return 0


def archive(
    spark: SparkSession,
    config: Config,
    until: date | None = None,
    say: Say = lambda line: None,
    due: Callable[[Connection], bool] = lambda connection: True,
) -> list[str]:
    """Archive what is closed and not archived yet, day by day; say and return what was done.

    ``due`` is asked under the lock: another run may have done it meanwhile. It may be killed and
    run again. Raises Busy and BadOption, and, when all else is archived, NotArchived.
    """
    with connected(config) as connection:
        moment, yesterday = now(connection), _yesterday(connection)
    if until and until > yesterday:
        raise BadOption(f"{until} is not closed: the last day that is, is {yesterday}")
    lines: list[str] = []

    def step() -> Window:
        for line in _archive(spark, config, until or yesterday, still_alone):
            say(line)
            lines.append(line)
        # Where only days of before were asked for, yesterday may be due.
        return Window("; ".join(lines), values={"until": None if until else moment})

    with alone(config, JOB) as still_alone:
        with connected(config) as connection:
            is_due = due(connection)
        if is_due:
            one_window(config.own(JOB), config, step)
    return lines


def _archive(
    spark: SparkSession, config: Config, until: date, still_alone: Callable[[], None]
) -> Iterator[str]:
    failed: dict[str, str] = {}
    with connected(config) as connection:
        parts = sorted(closed_parts(connection, until), key=_order)
    for _day, together in groupby(parts, key=lambda part: part.day):
        # Days are archived in their order: archived_offset must not pass one that is left out.
        left = [part for part in together if part.topic not in failed]
        yield from _archive_together(spark, config, left, still_alone, failed)
    if not parts:
        yield "nothing to archive"
    if failed:
        raise NotArchived("; ".join(failed.values()))


def closed_parts(connection: Connection, until: date) -> Iterator[DayPart]:
    """Yield what to archive up to ``until``, day by day: offsets rise with time."""
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
            yield DayPart(log.id, log.topic, log.number, day, first, end)
            first = end


def _archive_together(
    spark: SparkSession,
    config: Config,
    parts: list[DayPart],
    still_alone: Callable[[], None],
    failed: dict[str, str],
) -> Iterator[str]:
    """Archive the topics of a day by one query, or, if that fails, each by its own.

    ``failed`` gets the topics that cannot be archived, with the reason.
    """
    if not parts:
        return
    still_alone()
    topics = sorted({part.topic for part in parts})
    try:
        there, expected = _write_day(spark, config, parts)
    except Exception as error:  # noqa: BLE001 - whatever it is, other topics may be archived
        if len(topics) == 1:
            yield _fail(failed, parts, error)
            return
        for topic in topics:
            alike = [part for part in parts if part.topic == topic]
            yield from _archive_together(spark, config, alike, still_alone, failed)
        return
    path = f"{folder(config)}/date={parts[0].day}"
    for topic in topics:
        of_topic = [part for part in parts if part.topic == topic]
        marks = _only(topic, expected), _only(topic, there)
        try:
            yield _record_topic(config, of_topic, *marks, path)
        except Exception as error:  # noqa: BLE001 - as above
            yield _fail(failed, of_topic, error)


def _fail(failed: dict[str, str], parts: list[DayPart], error: Exception) -> str:
    """Note that a topic cannot be archived; return a line that says so."""
    about, reason = f"{parts[0].topic} {parts[0].day}", f"{type(error).__name__}: {error}"
    failed[parts[0].topic] = reason if about in reason else f"{about}: {reason}"
    return f"not archived: {failed[parts[0].topic]}"


def _write_day(
    spark: SparkSession, config: Config, parts: list[DayPart]
) -> tuple[Fingerprints, Fingerprints]:
    """Write the files of some topics on a day; return what they hold, and what the database has."""
    day = parts[0].day
    topics = sorted({part.topic for part in parts})
    with connected(config) as connection:
        for topic in topics:
            # The files of a topic and a day are written by one run, and replaced as a whole.
            if other := recorded(connection, config, topic, day, day):
                raise ArchiveDiffers(f"{topic} of {day} is in the archive: {[*other]}")
        is_in_lake = covers(connection, parts)
        files = [file.path for topic in topics for file in of_day(connection, config, topic, day)]
    if is_in_lake:
        whole = storage.read(spark, root(config), files).select(*MESSAGES.names)
        there, _seen = _write(spark, config, parts, _within(whole, parts))
        expected = fingerprints(from_database(spark, config, parts))
        if there == expected:
            return there, expected
    there, seen = _write(spark, config, parts, from_database(spark, config, parts))
    # What the database gave is what the files hold: to read it once more would tell nothing new.
    is_same = total(there.values()) == seen
    return there, there if is_same else fingerprints(from_database(spark, config, parts))


def _write(
    spark: SparkSession, config: Config, parts: list[DayPart], messages: DataFrame
) -> tuple[Fingerprints, Fingerprint]:
    """Write the files of these parts; return what they hold, and what was given to write."""
    day = parts[0].day
    given, seen = observed(messages)
    dated = given.withColumn("date", F.lit(day.isoformat()))
    storage.write(dated, folder(config), mode="overwrite")
    there = in_archive(spark, config, {part.topic for part in parts}, [day])
    return fingerprints(there), seen()


def _within(messages: DataFrame, parts: list[DayPart]) -> DataFrame:
    """Return the messages of these parts."""
    ids = F.col("partition_id")
    first = F.create_map(*[F.lit(n) for part in parts for n in (part.partition_id, part.first)])
    end = F.create_map(*[F.lit(n) for part in parts for n in (part.partition_id, part.end)])
    offset = F.col("offset")
    return messages.where(
        (offset >= F.try_element_at(first, ids)) & (offset < F.try_element_at(end, ids))
    )


def _only(topic: str, found: Fingerprints) -> dict[int, Fingerprint]:
    """Return the fingerprints of one topic, by partition id."""
    return {id_: mark for (name, id_), mark in found.items() if name == topic}


def from_database(spark: SparkSession, config: Config, parts: Iterable[DayPart]) -> DataFrame:
    """Return the messages of these parts, read again from the database."""
    bounds = {part.partition_id: [part.first, part.end] for part in parts}
    # What is not in the log is counted, see _record_topic: the rest of the day is archived.
    reader = spark.read.format("ems").schema(MESSAGES).options(config=config.path, holes="skip")
    return reader.option("bounds", json.dumps(bounds)).load()


def _record_topic(
    config: Config,
    parts: list[DayPart],
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
        retire_day(connection, config, parts[0].topic, parts[0].day)
        expected_rows = sum(_rows(connection, part) for part in parts)
    messages = sum(mark.messages for mark in there.values())
    missing = expected_rows - messages
    holes = f", {missing:,} offsets are not in the log: run reconcile" if missing else ""
    return f"{about}: {messages:,} messages archived{holes}"


def _rows(connection: Connection, part: DayPart) -> int:
    """Return how many offsets of a part have messages: all but what is left out."""
    return sum(map(len, kept(connection, part.partition_id, range(part.first, part.end))))


def _locked(connection: Connection, log: SourceLog) -> SourceLog:
    """Return the log after every pass that began before now: its end is read under the lock."""
    with transaction(connection):
        lock = FOR_UPDATE[vendor_of(connection)]
        ((first, end),) = fetch(
            connection,
            f"SELECT `first_offset`, `next_offset` FROM `ems_partition` WHERE `id` = %s {lock}",  # noqa: S608
            [log.id],
        )
    return SourceLog(log.id, log.topic, log.number, first, end)


def _yesterday(connection: Connection) -> date:
    return (now(connection) - CLOSED_AFTER).date() - timedelta(days=1)


def _day_at(connection: Connection, log: SourceLog, offset: int) -> date:
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


def _place(part: DayPart) -> tuple[str, int]:
    return part.topic, part.number


def _order(part: DayPart) -> tuple[date, str, int]:
    return part.day, *_place(part)

"""Roll up the consumption: what groups have done, how long it took, and how it failed, by minute.

A window is a time: it counts the deliveries that were finished in it. A delivery that is open now
may get a finish time in the past, when the transaction of its handler commits. So the next window
begins at the oldest of these, and its minutes are counted once more, as a whole.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparkjobs.config import EVERY, Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.instants import instant, minute_of, now, stored
from sparkjobs.lock import alone
from sparkjobs.rollup.figures import (
    MESSAGES_OF_LATENCY,
    consumption,
    error_classes,
    first_attempts,
    latencies,
)
from sparkjobs.rollup.runs import last_done
from sparkjobs.rollup.tables import CONSUMPTION, ERRORS, LATENCY, Row
from sparkjobs.rollup.windows import ROLL_UP, Say, Window, roll_up
from sparkjobs.session import session
from sparkjobs.source.schemas import DEAD, DELIVERIES, MESSAGES, only

JOB = "consumption"
# The longest window, which is what a run that is killed has to do again at most.
LONGEST = timedelta(days=1)
# The delivery log has an index by deadline, but none by finish time. A delivery finishes before its
# deadline or when it is swept soon after, so deadlines are searched from this long before a window.
AFTER_DEADLINE = timedelta(hours=1)
ENDED = "('DONE', 'RETRY', 'RELEASED')"
# An id that no row has, for a window in which there is nothing to read.
BEYOND = 2**62
# In offsets: the log is read in blocks of this many, so offsets close together are one range.
NEAR = 10_000

OF_DELIVERIES = (
    *("group_id", "partition_id", "first_offset", "last_offset", "progress", "kind", "state"),
    *("client_id", "thread", "claimed_at", "finished_at"),
    *("failed", "dead", "missing", "passed", "error"),
)
OF_DEAD = ("group_id", "error_class", "died_at")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would count")


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with connected(config) as connection:
        if options.dry_run:
            since = _since(connection)
            print(f"{JOB}: what was finished since {since or 'ever'}")
            return 0
        with alone(config, ROLL_UP):
            roll_up_consumption(session(JOB), config, connection, print)
    return 0


def roll_up_consumption(
    spark: SparkSession, config: Config, connection: Connection, say: Say
) -> None:
    roll_up(JOB, connection, lambda: window(spark, config, connection), say)


def window(spark: SparkSession, config: Config, connection: Connection) -> Window:
    """Compute the next window."""
    until = now(connection)
    since = _since(connection)
    if since is None:
        return Window("nothing was ever claimed", values={"until": until})
    # From where the last window has ended: an open delivery may be older than LONGEST.
    longest = max(since, last_done(connection, JOB, "until") or since) + LONGEST
    if more := until > longest:
        until = longest
    # Read before the deliveries: those that finish in between are then counted now, or next time.
    oldest = _oldest_open(connection)
    resume_at = min(until, oldest) if oldest else until
    times = {"since": since.isoformat(), "until": until.isoformat()}
    deliveries = _read(spark, config, "deliveries", OF_DELIVERIES, DELIVERIES).options(**times)
    dead = _read(spark, config, "dead", OF_DEAD, DEAD).options(**times)
    log = deliveries.option("start", _first_delivery(connection, since)).load().persist()
    letters = dead.option("start", _first_letter(connection, since)).load()
    try:
        read = log.count()
        figures = [
            (CONSUMPTION, _rows(consumption(log))),
            (LATENCY, _rows(_latencies(spark, config, connection, log)) if read else []),
            (ERRORS, _rows(error_classes(log, letters))),
        ]
    finally:
        log.unpersist()
    return Window(
        about=f"{read:,} deliveries until {until:%Y-%m-%d %H:%M:%S} UTC",
        figures=figures,
        values={"since": since, "until": until, "resume_at": resume_at, "read": read},
        more=more,
    )


def _since(connection: Connection) -> datetime | None:
    """Return where the next window begins; None if nothing was ever claimed."""
    since = last_done(connection, JOB, "resume_at")
    if since is None:
        rows = fetch(
            connection, "SELECT `claimed_at` FROM `ems_topic_group_log` ORDER BY `id` LIMIT 1"
        )
        since = instant(rows[0][0]) if rows else None
        return since and minute_of(since)
    ended = last_done(connection, JOB, "until") or since
    changed = _changed_since(connection, ended)
    return minute_of(min(since, changed) if changed else since)


def _oldest_open(connection: Connection) -> datetime | None:
    rows = fetch(
        connection,
        "SELECT MIN(`claimed_at`) FROM `ems_topic_group_log` WHERE `state` = 'START'"
        " AND `token` <> ''",  # without a token: given back, and deleted when it is claimed
    )
    return instant(rows[0][0])


def _changed_since(connection: Connection, ended: datetime) -> datetime | None:
    """Return when the oldest delivery finished that counts a letter written after ``ended``.

    When a group gives up on a waiting retry, the message is counted as dead in its last delivery,
    however long ago that was.
    """
    rows = fetch(
        connection,
        "SELECT MIN(l.`finished_at`) FROM (SELECT MAX(c.`id`) AS `id` FROM `ems_dead_msg` d"
        " JOIN `ems_topic_group_log` c"
        " ON c.`group_id` = d.`group_id` AND c.`partition_id` = d.`partition_id`"
        " AND c.`first_offset` > d.`offset` - 1000 AND c.`first_offset` <= d.`offset`"
        " AND c.`last_offset` >= d.`offset` WHERE d.`died_at` >= %s GROUP BY d.`id`) x"
        " JOIN `ems_topic_group_log` l ON l.`id` = x.`id`",
        [stored(ended)],
    )
    return instant(rows[0][0])


def _first_delivery(connection: Connection, since: datetime) -> int:
    """Return the id from which deliveries must be read; index: ems_log_open."""
    rows = fetch(
        connection,
        "SELECT MIN(`id`) FROM `ems_topic_group_log`"  # noqa: S608 - our words
        f" WHERE `state` IN {ENDED} AND `deadline` >= %s",
        [stored(since - AFTER_DEADLINE)],
    )
    return int(rows[0][0] or BEYOND)


def _first_letter(connection: Connection, since: datetime) -> int:
    """Return the id from which dead letters must be read; index: ems_dead_died."""
    rows = fetch(
        connection, "SELECT MIN(`id`) FROM `ems_dead_msg` WHERE `died_at` >= %s", [stored(since)]
    )
    return int(rows[0][0] or BEYOND)


def _read(spark: SparkSession, config: Config, table: str, names: Any, schema: Any) -> Any:
    reader = spark.read.format("ems").schema(only(schema, *names))
    return reader.options(config=config.path, namespace=EVERY, table=table)


def _latencies(
    spark: SparkSession, config: Config, connection: Connection, log: DataFrame
) -> DataFrame:
    """Return the latencies; only the messages of first attempts are read."""
    messages = [
        _read(spark, config, "messages", MESSAGES_OF_LATENCY, MESSAGES)
        .options(bounds=json.dumps(bounds), purged="skip")
        .load()
        for bounds in _ranges(connection, log)
    ]
    if not messages:
        return latencies(log, spark.createDataFrame([], only(MESSAGES, *MESSAGES_OF_LATENCY)))
    whole = messages[0]
    for part in messages[1:]:
        whole = whole.unionByName(part)
    return latencies(log, whole)


def _ranges(connection: Connection, log: DataFrame) -> Iterator[dict[int, tuple[int, int]]]:
    """Yield the offsets of first attempts, as one range of each partition at a time.

    The source takes one range of each partition. Groups may be far apart in the log: what lies
    between them is not read.
    """
    near = f.explode(
        f.sequence(f.floor(f.col("first_offset") / NEAR), f.floor((f.col("progress") - 1) / NEAR))
    )
    touched = first_attempts(log).select("partition_id", near.alias("near")).distinct()
    ends = dict(fetch(connection, "SELECT `id`, `next_offset` FROM `ems_partition`"))
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in touched.orderBy("partition_id", "near").toArrow().to_pylist():
        of_partition = ranges.setdefault(row["partition_id"], [])
        first, end = row["near"] * NEAR, (row["near"] + 1) * NEAR
        if of_partition and of_partition[-1][1] == first:
            first, _ = of_partition.pop()
        of_partition.append((first, min(end, ends[row["partition_id"]])))
    for turn in range(max(map(len, ranges.values()), default=0)):
        yield {id_: found[turn] for id_, found in ranges.items() if turn < len(found)}


def _rows(figures: DataFrame) -> list[Row]:
    rows: list[Row] = figures.toArrow().to_pylist()
    return rows

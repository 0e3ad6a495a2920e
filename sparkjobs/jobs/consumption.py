"""Roll up the consumption: what groups have done, how long it took, and how it failed, by minute.

A window is a time: what was finished since, from the delivery log. Deliveries that are open now
may yet be noted as finished a moment ago, when the transaction of their handler commits; so the
next window begins at the oldest of them, and its minutes are counted once more, as a whole.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparkjobs.config import Config
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
# What a run that is killed has to do again at most.
LONGEST = timedelta(days=1)
# The log has an index by deadline. A delivery finishes before its own, or when it is swept, which
# after an outage moves it; so this is more than enough.
AFTER_DEADLINE = timedelta(hours=1)
ENDED = "('DONE', 'RETRY', 'RELEASED')"
# An id that no row has: there is nothing to read.
BEYOND = 2**62
# Offsets that lie so close together are read as one range.
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
    """The next window, computed."""
    until = now(connection)
    since = _since(connection)
    if since is None:
        return Window("nothing was ever claimed", values={"until": until})
    # From where the last one has ended: what is open may be older than a window is long.
    longest = max(since, last_done(connection, JOB, "until") or since) + LONGEST
    if more := until > longest:
        until = longest
    # Before the log is read: what finishes in between is then counted now, or next time.
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
    """Where the next window begins; None: nothing was ever claimed."""
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
        connection, "SELECT MIN(`claimed_at`) FROM `ems_topic_group_log` WHERE `state` = 'START'"
    )
    return instant(rows[0][0])


def _changed_since(connection: Connection, ended: datetime) -> datetime | None:
    """When the oldest of the deliveries finished that count a letter written after ``ended``.

    Who gives up on a message that waits counts it as dead in its last delivery, however long ago
    that was.
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
    """The id from which the log need be read; index: ems_log_open."""
    rows = fetch(
        connection,
        "SELECT MIN(`id`) FROM `ems_topic_group_log`"  # noqa: S608 - our words
        f" WHERE `state` IN {ENDED} AND `deadline` >= %s",
        [stored(since - AFTER_DEADLINE)],
    )
    return int(rows[0][0] or BEYOND)


def _first_letter(connection: Connection, since: datetime) -> int:
    """The same of dead letters; index: ems_dead_died."""
    rows = fetch(
        connection, "SELECT MIN(`id`) FROM `ems_dead_msg` WHERE `died_at` >= %s", [stored(since)]
    )
    return int(rows[0][0] or BEYOND)


def _read(spark: SparkSession, config: Config, table: str, names: Any, schema: Any) -> Any:
    reader = spark.read.format("ems").schema(only(schema, *names))
    return reader.options(config=config.path, table=table)


def _latencies(
    spark: SparkSession, config: Config, connection: Connection, log: DataFrame
) -> DataFrame:
    """With the messages that the first attempts are about, and no others of the topics."""
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
    """The offsets of first attempts, as ranges: the source takes one of each partition at a time.

    Groups may be far apart: what lies between them is not read.
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

"""Roll up the backlog of every group: how far behind, since when, and when it will be done.

Also roll up the hot keys of the hours that the traffic has counted, of a day at most. The backlog
of a minute without a run stays unknown.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.instants import hour_of, instant, minute_of, now, stored
from sparkjobs.lock import alone
from sparkjobs.rollup.figures import MESSAGES_OF_KEYS, hot_keys
from sparkjobs.rollup.hours import Hour, counted_until, due, hours, spans
from sparkjobs.rollup.lag import Lag, lags
from sparkjobs.rollup.messages import Messages
from sparkjobs.rollup.runs import is_done, last_done
from sparkjobs.rollup.tables import BACKLOG, HOT_KEYS, Row
from sparkjobs.rollup.trend import Sample, fitted
from sparkjobs.rollup.windows import ROLL_UP, Say, Window, roll_up
from sparkjobs.session import session

JOB = "backlog"
TREND = timedelta(minutes=15)
KEYS_AT_MOST = timedelta(days=1)
# The ends of the partitions that one run of the traffic reads are this near to each other.
APART = timedelta(minutes=5)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would look at")


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with connected(config) as connection:
        if options.dry_run:
            found = lags(connection)
            for lag in found:
                print(f"{JOB}: group {lag.group_id}: {lag.total:,} messages")
            if not found:
                print(f"{JOB}: no group consumes a topic")
            return 0
        with alone(config, ROLL_UP):
            roll_up_backlog(session(JOB), config, connection, print)
    return 0


def roll_up_backlog(
    spark: SparkSession,
    config: Config,
    connection: Connection,
    say: Say,
    messages: Messages | None = None,
) -> None:
    each = windows(messages or Messages(spark, config), connection)
    roll_up(JOB, connection, lambda: next(each), say)


def windows(messages: Messages, connection: Connection) -> Iterator[Window]:
    """Compute the backlog now; then the hot keys of the hours since the last run, if any are due.

    The backlog needs the primary only. It is written before the messages are read, from a replica
    that may be away: how far behind a group was cannot be counted later.
    """
    moment = now(connection)
    found = lags(connection)
    hour = hour_of(moment)
    since = max(last_done(connection, JOB, "resume_at") or hour - KEYS_AT_MOST, hour - KEYS_AT_MOST)
    counted = due(hours(connection, since), hour)
    resume_at = keys_from(connection)
    values = {"since": since, "until": moment}
    yield Window(
        about=f"{len(found):,} groups, {sum(lag.total for lag in found):,} messages",
        figures=[(BACKLOG, _with_trends(connection, found, moment))],
        values={**values, "resume_at": None if counted else resume_at, "read": len(found)},
        more=bool(counted),
    )
    yield Window(
        about=f"hot keys of {len(counted):,} hours",
        figures=[(HOT_KEYS, _keys(messages, connection, counted))],
        values={**values, "resume_at": resume_at, "read": sum(one.messages for one in counted)},
    )


def keys_from(connection: Connection) -> datetime | None:
    """Return the first hour whose hot keys may change; None: as after the run before.

    If the traffic has failed on its way, it may have counted later hours of one partition, and not
    these of another.
    """
    reached = counted_until(connection)
    return hour_of(reached - APART) if reached and is_done(connection, "traffic") else None


def _with_trends(connection: Connection, found: list[Lag], moment: datetime) -> list[Row]:
    minute = minute_of(moment)
    samples: dict[int, list[Sample]] = {lag.group_id: [(moment, lag.total)] for lag in found}
    for group_id, at, behind in _earlier(connection, minute):
        samples.setdefault(group_id, []).append((at, behind))
    return [
        {**lag.figures, **asdict(fitted(samples[lag.group_id])), "minute": minute} for lag in found
    ]


def _earlier(connection: Connection, minute: datetime) -> list[tuple[Any, ...]]:
    rows = fetch(
        connection,
        "SELECT `group_id`, `minute`, `behind` + `open` + `waiting` FROM `ems_monitoring_backlog`"
        " WHERE `minute` >= %s AND `minute` < %s",
        [stored(minute - TREND), stored(minute)],
    )
    return [(group_id, instant(at), lag) for group_id, at, lag in rows]


def _keys(messages: Messages, connection: Connection, counted: list[Hour]) -> list[Row]:
    topics = dict(fetch(connection, "SELECT `name`, `id` FROM `ems_topic` t"))
    read = messages.covering(spans(counted), MESSAGES_OF_KEYS, is_last=True)
    rows = hot_keys(read).toArrow().to_pylist()
    # Topics that were deleted meanwhile are left out, and hours of which only a part was read.
    whole = {(hour.topic_id, hour.hour) for hour in counted}
    placed = ({**row, "topic_id": topics.get(row["topic"])} for row in rows)
    return [row for row in placed if (row["topic_id"], row["hour"]) in whole]

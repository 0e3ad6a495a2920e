"""Roll up the backlog of every group: add up the samples of EMS to hours and days.

Also roll up the hot keys of the hours that the traffic has counted, of a day at most.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.instants import hour_of, now
from sparkjobs.lock import alone
from sparkjobs.rollup import backlog
from sparkjobs.rollup.backlog import JOB
from sparkjobs.rollup.figures import MESSAGES_OF_KEYS, hot_keys
from sparkjobs.rollup.hours import Hour, counted_until, due, hours, spans
from sparkjobs.rollup.messages import Messages
from sparkjobs.rollup.runs import is_done, last_done
from sparkjobs.rollup.tables import BACKLOG, HOT_KEYS, Row, Rows, Table
from sparkjobs.rollup.windows import ROLL_UP, Say, Window, roll_up
from sparkjobs.session import session

KEYS_AT_MOST = timedelta(days=1)
# The ends of the partitions that one run of the traffic reads are this near to each other.
APART = timedelta(minutes=5)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would add up")


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with connected(config) as connection:
        if options.dry_run:
            (since, _until), *_more = backlog.stretches(connection, now(connection))
            print(f"{JOB}: the samples since {since}")
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
    source = messages or Messages(spark, config)
    roll_up(JOB, connection, lambda: window(source, connection), say)


def window(messages: Messages, connection: Connection) -> Window:
    """Compute the next window; the hot keys with the last one."""
    moment = now(connection)
    (since, until), *more = backlog.stretches(connection, moment)
    rows = backlog.hours(connection, since, until)
    figures: list[tuple[Table, Rows]] = [(BACKLOG, rows)]
    values = {"since": since, "until": until, "read": sum(row["samples"] for row in rows)}
    about = f"{len(rows):,} hours of groups"
    if not more:
        counted = _due_keys(connection, hour_of(moment))
        values["resume_at"] = keys_from(connection)
        values["read"] += sum(one.messages for one in counted)
        about += f", hot keys of {len(counted):,} hours"
        if counted:
            figures.append((HOT_KEYS, _keys(messages, connection, counted)))
    return Window(
        about=about,
        figures=figures,
        values=values,
        move=lambda connection: backlog.add_up_days(connection, since, until),
        more=bool(more),
    )


def keys_from(connection: Connection) -> datetime | None:
    """Return the first hour whose hot keys may change; None: as after the run before.

    If the traffic has failed on its way, it may have counted later hours of one partition, and not
    these of another.
    """
    reached = counted_until(connection)
    return hour_of(reached - APART) if reached and is_done(connection, "traffic") else None


def _due_keys(connection: Connection, current: datetime) -> list[Hour]:
    earliest = current - KEYS_AT_MOST
    since = max(last_done(connection, JOB, "resume_at") or earliest, earliest)
    return due(hours(connection, since), current)


def _keys(messages: Messages, connection: Connection, counted: list[Hour]) -> list[Row]:
    topics = dict(fetch(connection, "SELECT `name`, `id` FROM `ems_topic` t"))
    read = messages.covering(spans(counted), MESSAGES_OF_KEYS, is_last=True)
    rows = hot_keys(read).toArrow().to_pylist()
    # Topics that were deleted meanwhile are left out, and hours of which only a part was read.
    whole = {(hour.topic_id, hour.hour) for hour in counted}
    placed = ({**row, "topic_id": topics.get(row["topic"])} for row in rows)
    return [row for row in placed if (row["topic_id"], row["hour"]) in whole]

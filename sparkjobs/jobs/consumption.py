"""Roll up the consumption: what groups have done, how long it took, and how it failed, by minute.

A window is a time: it counts the deliveries that ended in it, by whole minutes. Two things change
minutes that are counted already, and only these are counted again: a delivery that was open gets an
end in the past, when the transaction of its handler commits (rollup/remembered.py); and a message
is given up long after its last delivery (rollup/letters.py).
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from sparkjobs.config import EVERY, Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.instants import instant, minute_of, now
from sparkjobs.lock import alone
from sparkjobs.rollup.again import Past, stretches
from sparkjobs.rollup.arrow import ArrowRows
from sparkjobs.rollup.claims import LATE, LONG, ended_between, ids_between, messages_between
from sparkjobs.rollup.figures import (
    MESSAGES_OF_LATENCY,
    MINUTE,
    consumption,
    error_classes,
    in_minutes,
    latencies,
    touched,
)
from sparkjobs.rollup.letters import LETTERS, counted_letters, minutes_of_letters
from sparkjobs.rollup.messages import Messages
from sparkjobs.rollup.offsets import NEAR, Span, joined
from sparkjobs.rollup.remembered import long_ones, look, remember
from sparkjobs.rollup.runs import last_done
from sparkjobs.rollup.tables import CONSUMPTION, ERRORS, LATENCY, Rows, Table
from sparkjobs.rollup.waiting import WAITS, waiting
from sparkjobs.rollup.windows import ROLL_UP, Say, Window, roll_up
from sparkjobs.session import session
from sparkjobs.source import here
from sparkjobs.source.schemas import DELIVERIES, only

JOB = "consumption"
# The longest window, which is what a run that is killed has to do again at most.
LONGEST = timedelta(days=1)
# The most messages of a window of more than SHORTEST: Spark keeps a time of each leg in memory.
WINDOW_MESSAGES = 2_000_000
# The shortest window after which another one follows: a minute of it is whole.
SHORTEST = LATE + timedelta(minutes=1)
# The most deliveries that each executor gets all of, so that messages need not be sorted.
SMALL = 200_000

OF_DELIVERIES = (
    *("id", "group_id", "partition_id", "first_offset", "last_offset", "progress", "kind"),
    *("attempt", "state", "client_id", "thread", "claimed_at", "finished_at"),
    *("failed", "dead", "missing", "passed", "error", "errors"),
)

Figures = list[tuple[Table, Rows]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would count")


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with connected(config) as connection:
        if options.dry_run:
            since = next_since(connection)
            print(f"{JOB}: what was finished since {since or 'ever'}")
            return 0
        with alone(config, ROLL_UP):
            roll_up_consumption(session(JOB), config, connection, print)
    return 0


def roll_up_consumption(
    spark: SparkSession,
    config: Config,
    connection: Connection,
    say: Say,
    messages: Messages | None = None,
) -> None:
    """Count again what has changed in the past, then what is new, window after window."""
    # Before the look at the past: a letter that is written from now on is for the next run, which
    # looks for those from the end of this one's last window on.
    end = now(connection)
    past = _past(connection)
    reader = ConsumptionReader(spark, config, connection, messages or Messages(spark, config))

    def step() -> Window:
        return _again(reader, past.pop(0)) if past else _next(reader, end)

    roll_up(JOB, connection, step, say)


def next_since(connection: Connection) -> datetime | None:
    """Return where the next window begins; None if nothing was ever claimed."""
    since = last_done(connection, JOB, "resume_at")
    if since is None:
        rows = fetch(
            connection, "SELECT `claimed_at` FROM `ems_topic_group_log` ORDER BY `id` LIMIT 1"
        )
        since = instant(rows[0][0]) if rows else None
    return since and minute_of(since)


def _past(connection: Connection) -> list[Past]:
    """Return which minutes have changed since they were counted."""
    since, ended = last_done(connection, JOB, "resume_at"), last_done(connection, JOB, "until")
    if since is None or ended is None:
        return []
    since = minute_of(since)
    late = [one for one in look(connection, since).remembered if one.ended_late(since)]
    of_letters = minutes_of_letters(connection, ended - LATE, since)
    return stretches(late, of_letters, LONGEST)


def _again(reader: ConsumptionReader, past: Past) -> Window:
    """Compute some minutes of the past once more."""
    seen = look(reader.connection, past.since)
    chosen = reader.spark.createDataFrame(sorted(past.minutes), MINUTE)
    whole = reader.deliveries(past.since, past.until, seen.long_ends(past.since, past.until))
    log = in_minutes(whole, chosen).persist()
    try:
        done, read = _consumption(log)
        figures: Figures = [(CONSUMPTION, done)]
        if past.late:
            ended_late = in_minutes(log, reader.spark.createDataFrame(past.minutes_of_late, MINUTE))
            died = minute_of(past.oldest_claim), past.until
            figures.append((LATENCY, reader.latencies(ended_late)))
            figures.append((ERRORS, reader.errors(ended_late, done, *died)))
    finally:
        log.unpersist()
    return Window(
        about=f"{read:,} deliveries of {len(past.minutes):,} minutes once more",
        figures=figures,
        values={"since": past.since, "read": read},
        # Its run has no ``until``: the next window begins where it would have begun.
        move=lambda connection: remember(connection, seen, past.until, past.until, late=past.late),
        more=True,
    )


def window_end(connection: Connection, since: datetime, end: datetime) -> datetime:
    """Return where the window from ``since`` on ends: at ``end``, or before if it has too much."""
    # From where the last window has ended: the first one may begin long before.
    until = min(end, max(since, last_done(connection, JOB, "until") or since) + LONGEST)
    while until - since > SHORTEST and messages_between(connection, since, until) > WINDOW_MESSAGES:
        until = max(since + SHORTEST, minute_of(since + (until - since) / 2))
    return until


def _next(reader: ConsumptionReader, end: datetime) -> Window:
    """Compute the next window, which ends at ``end`` at the latest."""
    connection = reader.connection
    since = next_since(connection)
    if since is None:
        return Window("nothing was ever claimed", values={"until": end})
    until = window_end(connection, since, end)
    seen = look(connection, since)
    # What was claimed since the last run, and was open for long, no look has seen.
    is_long = now(connection) - since > LONG
    long = long_ones(connection, ids_between(connection, since, until)) if is_long else []
    # Before the letters that these have written, and that were not seen before they ended.
    died = minute_of(min(since, seen.oldest_claim(since, until) or since))
    log = reader.deliveries(since, until, seen.long_ends(since, until)).persist()
    try:
        done, read = _consumption(log)
        figures: Figures = [
            (CONSUMPTION, done),
            (LATENCY, reader.latencies(log) if read else []),
            (ERRORS, reader.errors(log, done, died, until)),
        ]
    finally:
        log.unpersist()
    return Window(
        about=f"{read:,} deliveries until {until:%Y-%m-%d %H:%M:%S} UTC",
        figures=figures,
        values={
            "since": since,
            "until": until,
            "resume_at": max(since, minute_of(until - LATE)),
            "read": read,
        },
        move=lambda connection: remember(connection, seen, since, until, long),
        more=until < end,
    )


@dataclass(frozen=True)
class ConsumptionReader:
    """What the figures of a time need, and no more of the tables."""

    spark: SparkSession
    config: Config
    connection: Connection
    messages: Messages

    def deliveries(self, since: datetime, until: datetime, long: Iterable[int]) -> DataFrame:
        """Return the deliveries that ended in this time; ``long`` are ids of those to be added.

        Each has ``waits``, the offsets that it has passed without a call.
        """
        first, end = ids_between(self.connection, since, until)
        options = {
            "config": self.config.path,
            "namespace": EVERY,
            "table": "deliveries",
            "since": since.isoformat(),
            "until": until.isoformat(),
            "start": str(first),
            "end": str(end),
        }
        # One more than a few: it matters only whether there are more.
        ended = ended_between(self.connection, (first, end), since, until, here.FEW + 1)
        log = here.load(self.spark, only(DELIVERIES, *OF_DELIVERIES), options, ended)
        far = [id_ for id_ in long if not first <= id_ < end]
        if more := [row for id_ in far for row in self._delivery(id_)]:
            log = log.unionByName(
                self.spark.createDataFrame(more, only(DELIVERIES, *OF_DELIVERIES))
            )
        # After the rows of a small window are read: of each of them this sees what it has passed.
        spans = [(first, end), *((id_, id_ + 1) for id_ in far)]
        waits = [row for span in spans for row in waiting(self.connection, span, since, until)]
        if waits:
            there = self.spark.createDataFrame(waits, WAITS)
            return log.join(f.broadcast(there), "id", "left")
        return log.withColumn("waits", f.lit(None).cast("array<long>"))

    def errors(self, log: DataFrame, done: ArrowRows, since: datetime, until: datetime) -> Rows:
        """Return the classes of error, with the dead letters that were written in this time.

        ``done`` is the consumption of ``log``, which tells whether anything has failed.
        """
        letters = counted_letters(self.connection, since, until)
        if not letters and not done.total("failed") and not done.total("lost"):
            return []
        return _rows(error_classes(log, self.spark.createDataFrame(letters, LETTERS)))

    def latencies(self, log: DataFrame) -> Rows:
        """Return the latencies; only the messages of first attempts are read."""
        found: list[dict[str, int]] = touched(log, NEAR).toArrow().to_pylist()
        spans = self._spans(found)
        if not spans:
            return []
        whole = self.messages.covering(spans, MESSAGES_OF_LATENCY)
        count, offsets = (sum(row[name] for row in found) for name in ("deliveries", "offsets"))
        width = -(-offsets // count)
        return _rows(latencies(log, whole, width, self._tags(), small=count <= SMALL))

    def _tags(self) -> dict[int, list[str]]:
        """Return the tags that groups want, by id; those that want all messages are left out."""
        rows = fetch(
            self.connection, "SELECT `id`, `tags` FROM `ems_group` g WHERE `tags` IS NOT NULL"
        )
        return {id_: tags for id_, text in rows if (tags := json.loads(text))}

    def _spans(self, found: Iterable[dict[str, int]]) -> dict[int, list[Span]]:
        """Return these offsets as spans of each partition that is there."""
        ends = dict(fetch(self.connection, "SELECT `id`, `next_offset` FROM `ems_partition`"))
        spans: dict[int, list[Span]] = {}
        for row in found:
            if (id_ := row["partition_id"]) in ends:
                spans.setdefault(id_, []).append((row["first"], min(row["end"], ends[id_])))
        return {id_: joined(of_partition) for id_, of_partition in spans.items()}

    def _delivery(self, id_: int) -> list[tuple[Any, ...]]:
        columns = ", ".join(f"`{name}`" for name in OF_DELIVERIES)
        rows = fetch(
            self.connection,
            f"SELECT {columns} FROM `ems_topic_group_log` WHERE `id` = %s",  # noqa: S608
            [id_],
        )
        times = {OF_DELIVERIES.index(name) for name in ("claimed_at", "finished_at")}
        return [
            tuple(instant(value) if at in times else value for at, value in enumerate(row))
            for row in rows
        ]


def _consumption(log: DataFrame) -> tuple[ArrowRows, int]:
    """Return the consumption, and how many deliveries were read for it, by one query."""
    seen = Observation()
    done = _rows(consumption(log.observe(seen, f.count("*").alias("read"))))
    return done, seen.get.get("read", 0)


def _rows(figures: DataFrame) -> ArrowRows:
    return ArrowRows(figures.toArrow())

"""Check the whole history: every committed message, and every cluster group.

Finds holes and repeats in the log and in what the groups did, deliveries that were lost, and breaks
of order; the exit status is 1 if there are any. While processes work, a message that moves between
tables may seem to be lost, so only what is found twice is reported.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparkjobs.archive.manifest import is_own
from sparkjobs.audit.findings import HOLE
from sparkjobs.audit.groups import CURSORS, group_findings
from sparkjobs.audit.log import LOGS, log_findings
from sparkjobs.audit.noted import NamedFinding, note
from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, fetch, vendor_of
from sparkjobs.instants import EPOCH, MICROSECONDS, now
from sparkjobs.lock import alone
from sparkjobs.rollup.windows import Say, Window, one_window
from sparkjobs.session import session
from sparkjobs.source.left_out import kept
from sparkjobs.source.schemas import DEAD, DELIVERIES, MESSAGES, RETRIES, only
from sparkjobs.source.splits import SourceLog, logs

OF_DELIVERIES = (
    *("id", "group_id", "partition_id", "first_offset", "last_offset", "progress", "kind"),
    *("state", "claimed_at", "finished_at", "failed", "dead", "missing"),
)
OF_DEAD = ("group_id", "partition_id", "offset", "died_at", "redriven_at")
MICROSECOND = timedelta(microseconds=1)
# The most findings that are printed and noted.
SHOWN = 1000
JOB = "reconcile"


@dataclass(frozen=True)
class Compared:
    """What a look has compared; ``since`` is when its oldest message came into the log."""

    messages: int
    partitions: int
    cursors: int
    since: datetime | None

    def __str__(self) -> str:
        of_log = f"{self.messages:,} messages of {self.partitions:,} partitions"
        return f"{of_log}, {self.cursors:,} cursors"


def add_arguments(parser: ArgumentParser) -> None:
    """Add no arguments: the job checks the whole history."""


def run(config: Config, options: Namespace) -> int:
    return int(check(session(JOB), config, print) > 0)


def check(
    spark: SparkSession,
    config: Config,
    say: Say,
    due: Callable[[Connection], bool] = lambda connection: True,
) -> int:
    """Reconcile; say and note what is found, with the verdict; return how many findings there are.

    ``due`` is asked under the lock: another run may have done it meanwhile. Raises Busy.
    """

    def step() -> Window:
        found, compared = reconcile(spark, config)
        for finding in found[:SHOWN]:
            say(str(finding))
        verdict = f"{len(found):,} findings" if found else "nothing is wrong"
        say(f"{compared}: {verdict}")
        with connected(config) as connection:
            moment = now(connection)
        return Window(
            f"{compared}: {verdict}",
            values={
                "since": compared.since,
                "until": moment,
                "read": compared.messages,
                "rows": len(found),
            },
            move=lambda connection: note(connection, config, found[:SHOWN], moment),
        )

    with alone(config, JOB):
        with connected(config) as connection:
            is_due = due(connection)
        return int(one_window(config.own(JOB), config, step).values["rows"]) if is_due else 0


def reconcile(spark: SparkSession, config: Config) -> tuple[list[NamedFinding], Compared]:
    """Return all that is found twice, and what was checked."""
    found, compared = _look(spark, config)
    if found:
        again = set(_look(spark, config)[0])
        found = [finding for finding in found if finding in again]
    return found, compared


def _look(spark: SparkSession, config: Config) -> tuple[list[NamedFinding], Compared]:
    with connected(config) as connection:
        since = _oldest(connection)
        # Cursors are read first, so that what they have passed is in the log and the deliveries
        # that are read later.
        cursors = _cursors(connection)
        partitions = logs(connection)
        groups = dict(fetch(connection, "SELECT `id`, `name` FROM `ems_group` g"))
        archived = _archive_findings(connection, config)
        parts = [
            (log.id, part.start, part.stop)
            for log in partitions
            for part in kept(connection, log.id, range(log.first, log.end))
        ]
    where = {log.id: f"{log.topic}/{log.number}" for log in partitions}
    bounds = {log.id: [log.first, log.end] for log in partitions}
    tables: dict[str, StructType] = {
        "retries": only(RETRIES, "group_id", "partition_id", "offset"),
        "dead": only(DEAD, *OF_DEAD),
        "deliveries": only(DELIVERIES, *OF_DELIVERIES),
    }
    frames = {
        # Each frame is used several times, and persisted so that it is read once.
        name: _load(spark, config, schema, table=name).persist()
        for name, schema in tables.items()
    }
    columns = only(MESSAGES, "partition_id", "offset", "sequenced_at")
    skip = {"purged": "skip", "holes": "skip"}  # it finds them itself
    messages = _load(spark, config, columns, bounds=json.dumps(bounds), **skip)
    found = log_findings(messages, spark.createDataFrame(parts, LOGS)).unionByName(
        group_findings(**frames, cursors=spark.createDataFrame(cursors, CURSORS))
    )
    rows = found.toArrow().to_pylist() if partitions else []
    for frame in frames.values():
        frame.unpersist()
    purged = _purged_since(config, partitions)
    named = {
        NamedFinding(
            row["kind"],
            " on ".join(filter(None, [groups.get(row["group_id"]), where[row["partition_id"]]])),
            row["first_offset"],
            row["last_offset"],
            row["detail"],
        )
        for row in rows
        if row["last_offset"] >= purged.get(row["partition_id"], 0)
    }
    total = sum(log.end - log.first for log in partitions)
    order = sorted({*named, *archived}, key=lambda f: (f.where, f.first, f.kind, f.detail))
    return order, Compared(total, len(partitions), len(cursors), since)


def _load(spark: SparkSession, config: Config, schema: StructType, **options: str) -> DataFrame:
    return spark.read.format("ems").schema(schema).options(config=config.path, **options).load()


def _cursors(connection: Connection) -> list[tuple[Any, ...]]:
    """Return rows as CURSORS.

    Below the floor there are no messages, or their deliveries may have been deleted.
    """
    greatest = {"mysql": "GREATEST", "sqlite": "MAX"}[vendor_of(connection)]
    reset_at = MICROSECONDS[vendor_of(connection)].format("c.`reset_at`")
    rows = fetch(
        connection,
        f"SELECT c.`group_id`, c.`partition_id`,"  # noqa: S608 - our names
        f" {greatest}(c.`start_offset`, p.`first_offset`, c.`log_offset`), c.`next_offset`,"
        f" g.`ordered`, g.`by_key`, {reset_at} FROM `ems_cursor` c"
        " JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        " JOIN `ems_group` g ON g.`id` = c.`group_id`"
        " WHERE c.`replay` = 0 AND g.`mode` = 'cluster'",
    )
    return [
        (*place, bool(ordered), bool(key), None if reset is None else EPOCH + reset * MICROSECOND)
        for *place, ordered, key, reset in rows
    ]


def _oldest(connection: Connection) -> datetime | None:
    """Return when the oldest message of all logs was sequenced; each is found by ems_msg_log."""
    at = MICROSECONDS[vendor_of(connection)].format("`sequenced_at`")
    oldest = (
        f"SELECT {at} FROM `ems_msg` m WHERE m.`partition_id` = p.`id`"  # noqa: S608 - our names
        " AND m.`offset` >= p.`first_offset` ORDER BY m.`offset` LIMIT 1"
    )
    parts = "`ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
    ((found,),) = fetch(connection, f"SELECT MIN(({oldest})) FROM {parts}")  # noqa: S608
    return None if found is None else EPOCH + found * MICROSECOND


def _purged_since(config: Config, partitions: list[SourceLog]) -> dict[int, int]:
    """Return the floors of the partitions now: below them, messages may have been purged since."""
    with connected(config) as connection:
        return {log.id: log.first for log in logs(connection)} if partitions else {}


def _archive_findings(connection: Connection, config: Config) -> list[NamedFinding]:
    """Find gaps in the archive, which must hold all that a partition says is archived.

    Of one that is gone, only what its days say: how many offsets each has left out is forgotten.
    """
    there = {log.id for log in logs(connection)}
    rows = fetch(
        connection,
        "SELECT `partition_id`, `topic`, `number`, `first_offset`, `end_offset`, `messages`"
        " FROM `ems_monitoring_archive` ORDER BY `partition_id`, `first_offset`",
    )
    found = []
    reached: dict[int, int] = {}
    for partition_id, topic, number, first, end, messages in rows:
        if not is_own(config, topic):
            continue
        where = f"{topic.removeprefix(config.prefix)}/{number}"
        before = reached.get(partition_id, first)
        if first > before:
            found.append(NamedFinding(HOLE, where, before, first - 1, "not in the archive"))
        expected = sum(map(len, kept(connection, partition_id, range(first, end))))
        if partition_id in there and messages != expected:
            detail = f"the archive has {messages:,} of {expected:,}"
            found.append(NamedFinding(HOLE, where, first, end - 1, detail))
        reached[partition_id] = end
    return found

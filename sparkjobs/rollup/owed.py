"""Tells by a few statements whether there is anything to roll up, so that nothing starts no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sparkjobs.database import Connection, execute, fetch, transaction, vendor_of
from sparkjobs.instants import hour_of, instant, minute_of, now, stored
from sparkjobs.rollup import backlog
from sparkjobs.rollup.claims import LATE, claimed_since
from sparkjobs.rollup.hours import counted_until, due, hours
from sparkjobs.rollup.runs import last_done
from sparkjobs.rollup.tables import BACKLOG, upsert

JOBS = ("traffic", "consumption", "backlog")
HOUR = timedelta(hours=1)
# One row notes this much of a quiet time at most.
LONGEST_QUIET = timedelta(days=1)

# The messages that are in the log and not counted.
UNCOUNTED = (
    "SELECT COALESCE(SUM(p.`next_offset` - COALESCE(d.`next_offset`, 0)), 0)"
    " FROM `ems_partition` p"
    " LEFT JOIN `ems_monitoring_position` d ON d.`partition_id` = p.`id`"
    " WHERE p.`next_offset` > COALESCE(d.`next_offset`, 0)"
)
_LAST = (
    "(SELECT `until` FROM `ems_monitoring_run` WHERE `job` = '{job}' AND `state` = 'done'"
    " ORDER BY `id` DESC LIMIT 1)"
)
# What a group has before it is not owed: the samples have it. A delivery finishes before its
# deadline or soon after: see jobs/consumption.py. Indexes: ems_log_open, ems_dead_died,
# ems_run_job.
UNSETTLED = {
    # A range without a token was given back: its messages wait, as others do.
    vendor: "SELECT EXISTS (SELECT 1 FROM `ems_topic_group_log`"  # noqa: S608 - our words
    " WHERE `state` = 'START' AND `token` <> '')"
    # What the last runs have seen; without them everything is owed.
    " OR COALESCE(r.`consumption` > r.`backlog`, TRUE)"
    " OR EXISTS (SELECT 1 FROM `ems_topic_group_log` l"
    " WHERE l.`state` IN ('DONE', 'RETRY', 'RELEASED', 'SKIPPED')"
    f" AND l.`deadline` >= {hour_before} AND l.`finished_at` >= r.`consumption`)"
    # What was open then may have got an end in the past: rollup/remembered.py.
    " OR EXISTS (SELECT 1 FROM `ems_monitoring_open` o"
    " JOIN `ems_topic_group_log` l ON l.`id` = o.`delivery_id`"
    " WHERE o.`finished_at` IS NULL AND l.`state` <> 'START')"
    # A letter may be committed a minute later than it says: LATE.
    f" OR EXISTS (SELECT 1 FROM `ems_dead_msg` d WHERE d.`died_at` >= {minute_of_letters})"
    f" FROM (SELECT {_LAST.format(job='consumption')} AS `consumption`,"
    f" {_LAST.format(job='backlog')} AS `backlog`) r"
    for vendor, hour_before, minute_of_letters in (
        (
            "mysql",
            "r.`consumption` - INTERVAL 1 HOUR",
            "r.`consumption` - INTERVAL 1 MINUTE",
        ),
        (
            "sqlite",
            "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', r.`consumption`, '-1 hour')",
            "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', r.`consumption`, '-1 minute')",
        ),
    )
}


@dataclass(frozen=True)
class Owed:
    """What to roll up: how many messages and deliveries are not counted yet."""

    messages: int
    deliveries: int

    @property
    def rows(self) -> int:
        return self.messages + self.deliveries


def owed(connection: Connection) -> Owed | None:
    """Return what to roll up; None if a roll-up would write nothing new."""
    ((messages,),) = fetch(connection, UNCOUNTED)
    if not messages:
        ((unsettled,),) = fetch(connection, UNSETTLED[vendor_of(connection)])
        if not unsettled and not _keys_are_due(connection):
            return None
    return Owed(
        int(messages), claimed_since(connection, last_done(connection, "consumption", "resume_at"))
    )


def _keys_are_due(connection: Connection) -> bool:
    """Tell whether the last hour with messages is over, and its hot keys rest on a part of it.

    A roll-up of after its end has ranked what there is: messages may be lost from the log.
    """
    reached, current = counted_until(connection), hour_of(now(connection))
    if reached is None or not current - LONGEST_QUIET <= hour_of(reached) < current:
        return False
    rows = fetch(
        connection,
        "SELECT `started_at` FROM `ems_monitoring_run` WHERE `job` = 'backlog'"
        " AND `state` = 'done' AND `resume_at` IS NOT NULL ORDER BY `id` DESC LIMIT 1",
    )
    began = instant(rows[0][0]) if rows else None
    if began and began >= hour_of(reached) + HOUR:
        return False
    return bool(due(hours(connection, hour_of(reached)), current))


def note_nothing(connection: Connection, at: datetime) -> None:
    """Record for each job that a window until ``at`` has nothing in it: a quiet time is one row.

    ``at`` is read before ``owed``, which has returned None: what it has not seen is later. The
    backlog has samples also of a quiet time: they are added up, which needs no Spark.
    """
    moment = stored(at)
    with transaction(connection):
        for since, until in backlog.stretches(connection, at):
            upsert(connection, BACKLOG, backlog.hours(connection, since, until))
            backlog.add_up_days(connection, since, until)
        for job in JOBS:
            # The next window of the consumption begins where one of its own would have let it
            # begin. The others go on from where their own last window has left them.
            resume_at = stored(minute_of(at - LATE)) if job == "consumption" else None
            if id_ := _quiet_row(connection, job):
                execute(
                    connection,
                    "UPDATE `ems_monitoring_run` SET `until` = %s, `resume_at` = %s,"
                    " `finished_at` = %s WHERE `id` = %s",
                    [moment, resume_at, moment, id_],
                )
            else:
                execute(
                    connection,
                    "INSERT INTO `ems_monitoring_run` (`job`, `state`, `since`, `until`,"
                    " `resume_at`, `read`, `rows`, `missed`, `seconds`, `error`, `started_at`,"
                    " `finished_at`) VALUES (%s, 'done', %s, %s, %s, 0, 0, 0, 0, '', %s, %s)",
                    [job, moment, moment, resume_at, moment, moment],
                )


def _quiet_row(connection: Connection, job: str) -> int | None:
    """Return the newest row of the job, if it notes a quiet time that is not too long yet."""
    rows = fetch(
        connection,
        "SELECT `id`, `state`, `seconds`, `started_at` FROM `ems_monitoring_run`"
        " WHERE `job` = %s ORDER BY `id` DESC LIMIT 1",
        [job],
    )
    if not rows or rows[0][1] != "done" or rows[0][2] != 0:  # a window of a job takes its time
        return None
    began = instant(rows[0][3])
    return int(rows[0][0]) if began and now(connection) - began < LONGEST_QUIET else None

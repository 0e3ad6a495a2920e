"""Writes the table of runs: one row for each window, done in the transaction of its figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkjobs.database import NOW, Connection, execute, fetch, vendor_of
from sparkjobs.errors import SparkJobsError
from sparkjobs.instants import instant, stored

RUNNING, DONE, FAILED = "running", "done", "failed"
KILLED = "It did not come to its end: its process was killed, or lost the database."
MAX_ERROR, MAX_ABOUT = 10_000, 500
# Older rows of this table are deleted, but for the newest ones.
KEEP_DAYS = 30


class Overtaken(SparkJobsError):
    """Another run of this job has begun meanwhile: this one has written nothing."""

    def __str__(self) -> str:
        return str(self.__doc__)


@dataclass
class Run:
    """One window of one job."""

    id: int
    job: str
    _started: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, connection: Connection, job: str) -> Run:
        """Record that the job runs, and mark earlier runs that did not end as failed."""
        now = NOW[vendor_of(connection)]
        execute(
            connection,
            f"UPDATE `ems_monitoring_run` SET `state` = %s, `error` = %s, `finished_at` = {now}"  # noqa: S608
            " WHERE `job` = %s AND `state` = %s",
            [FAILED, KILLED, job, RUNNING],
        )
        execute(
            connection,
            "INSERT INTO `ems_monitoring_run` (`job`, `state`, `missed`, `error`, `started_at`)"  # noqa: S608
            f" VALUES (%s, %s, 0, '', {now})",
            [job, RUNNING],
        )
        ((id_,),) = fetch(
            connection,
            "SELECT MAX(`id`) FROM `ems_monitoring_run` WHERE `job` = %s AND `state` = %s",
            [job, RUNNING],
        )
        return cls(int(id_), job)

    def done(self, connection: Connection, **values: Any) -> None:
        """Record the end, inside the transaction that writes the figures.

        ``values``: since, until, resume_at, read, rows, missed, about. Raises Overtaken if another
        run has begun, which rolls the transaction back.
        """
        if not self._end(connection, DONE, values):
            raise Overtaken

    def failed(self, connection: Connection, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        self._end(connection, FAILED, {"error": text})

    def _end(self, connection: Connection, state: str, values: dict[str, Any]) -> bool:
        changes = {"state": state, "seconds": time.monotonic() - self._started, **values}
        named = ", ".join(f"`{name}` = %s" for name in changes)
        return bool(
            execute(
                connection,
                f"UPDATE `ems_monitoring_run` SET {named},"  # noqa: S608 - our names
                f" `finished_at` = {NOW[vendor_of(connection)]} WHERE `id` = %s AND `state` = %s",
                [*map(stored, changes.values()), self.id, RUNNING],
            )
        )


def last_done(connection: Connection, job: str, column: str) -> datetime | None:
    """Return ``column`` of the newest run of this job that is done; None if there is none."""
    rows = fetch(
        connection,
        f"SELECT `{column}` FROM `ems_monitoring_run`"  # noqa: S608 - our names
        f" WHERE `job` = %s AND `state` = %s AND `{column}` IS NOT NULL ORDER BY `id` DESC LIMIT 1",
        [job, DONE],
    )
    return instant(rows[0][0]) if rows else None


def is_done(connection: Connection, job: str) -> bool:
    """Tell whether the newest run of this job is done; also if there is none."""
    rows = fetch(
        connection,
        "SELECT `state` FROM `ems_monitoring_run` WHERE `job` = %s ORDER BY `id` DESC LIMIT 1",
        [job],
    )
    return not rows or rows[0][0] == DONE


def prune(connection: Connection) -> None:
    """Delete the runs that are older than KEEP_DAYS, but for the newest of each job and state.

    The next window begins where the last one has ended, and what reconcile has found last stands
    until it has looked again.
    """
    old = {
        "mysql": f"UTC_TIMESTAMP(6) - INTERVAL {KEEP_DAYS} DAY",
        "sqlite": f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '-{KEEP_DAYS} days')",
    }[vendor_of(connection)]
    execute(
        connection,
        f"DELETE FROM `ems_monitoring_run` WHERE `started_at` < {old}"  # noqa: S608
        # MySQL reads the table that it deletes from only in a table of its own.
        " AND `id` NOT IN (SELECT `newest` FROM (SELECT MAX(`id`) AS `newest`"
        " FROM `ems_monitoring_run` GROUP BY `job`, `state`) AS `kept`)",
    )

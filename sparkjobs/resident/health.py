"""Records in the table of runs that the service lives, for the pages and for ems_doctor."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from sparkjobs.database import Connection, execute
from sparkjobs.instants import now, stored
from sparkjobs.rollup.runs import Run

JOB = "serve"
# A row is about a day at most, since old runs are deleted.
LONGEST = timedelta(days=1)


class ServiceHealth:
    """The row of this service: running, and ``until`` is when it has looked last."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def looked(self, error: str) -> None:
        """Record that it has looked what is due; ``error`` says what has failed and is not done."""
        moment = now(self._connection)
        if moment - self._since > LONGEST:
            self.ended()
            self._begin()
        execute(
            self._connection,
            "UPDATE `ems_monitoring_run` SET `until` = %s, `error` = %s WHERE `id` = %s",
            [stored(moment), error, self._run.id],
        )

    def ended(self) -> None:
        """Record that it ends as it should; a killed service's row is ended by the next one."""
        with contextlib.suppress(Exception):  # the database may be what has failed
            self._run.done(self._connection, until=now(self._connection))

    def _begin(self) -> None:
        self._run = Run.begin(self._connection, JOB)
        self._since = now(self._connection)
        execute(
            self._connection,
            "UPDATE `ems_monitoring_run` SET `since` = %s, `until` = %s WHERE `id` = %s",
            [stored(self._since), stored(self._since), self._run.id],
        )

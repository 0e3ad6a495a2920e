"""The database connections of a consumer process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from threading import current_thread, local
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created

# A connection may be silent for the longest handler call and so much more.
MARGIN = timedelta(seconds=10)

# Keepers run no user code: frozen, they hold a partition no longer than this, and a row that
# somebody else holds keeps the heartbeat from the other leases no longer than that.
KEEPER_PREFIX = "ems-"
KEEPER_IDLE_SECONDS = 20
KEEPER_LOCK_SECONDS = 2


class IdleLimit:
    """Connections are kept open between steps, and ended by the server when they are silent.

    CONN_MAX_AGE is meant for web requests: it would reconnect for every claim. A frozen process
    may hold a row lock that others need; with a short wait_timeout the server frees it after the
    longest consume_timeout and MARGIN instead of hours. An idle connection that was ended is
    opened again.
    """

    def __init__(self, using: str, timeouts: Sequence[timedelta] = ()) -> None:
        self._using = using
        self._limit = max(timeouts, default=timedelta(0)) + MARGIN
        self._in_force = local()

    def install(self) -> None:
        connections.settings[self._using].update({"CONN_MAX_AGE": None, "AUTOCOMMIT": True})
        connection_created.connect(self._set)
        connections[self._using].close()

    def allow(self, timeout: timedelta) -> None:
        """Make room for handler calls of ``timeout`` on this thread's connection."""
        self._limit = max(self._limit, timeout + MARGIN)
        if getattr(self._in_force, "limit", self._limit) < self._limit:
            connections[self._using].close()

    def _set(self, *, connection: Any, **kwargs: Any) -> None:
        if connection.alias != self._using or connection.vendor != "mysql":
            return
        with connection.cursor() as cursor:
            if current_thread().name.startswith(KEEPER_PREFIX):
                cursor.execute(
                    "SET SESSION wait_timeout = %s, SESSION innodb_lock_wait_timeout = %s",
                    [KEEPER_IDLE_SECONDS, KEEPER_LOCK_SECONDS],
                )
            else:
                self._in_force.limit = self._limit
                seconds = math.ceil(self._limit.total_seconds())
                cursor.execute("SET SESSION wait_timeout = %s", [seconds])

"""The database connections of a consumer process."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created


class Connections:
    """Kept open between steps, and ended by the server when this process is frozen.

    CONN_MAX_AGE is meant for web requests: it would reconnect for every claim. A frozen process
    may hold a row lock that others need; with a short wait_timeout the server frees it after
    ``idle_seconds`` instead of hours. An idle connection that has been ended is opened again.
    """

    def __init__(self, using: str, idle_seconds: float) -> None:
        self._using = using
        self._idle_seconds = max(1, int(idle_seconds))

    def install(self) -> None:
        connections.settings[self._using]["CONN_MAX_AGE"] = None
        connection_created.connect(self._limit_idle_time)
        connections[self._using].close()

    def _limit_idle_time(self, *, connection: Any, **kwargs: Any) -> None:
        if connection.alias == self._using and connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION wait_timeout = %s", [self._idle_seconds])

"""Sets up the database connections of a consumer process."""

from __future__ import annotations

import math
import os
import socket
import time
from datetime import timedelta
from threading import current_thread, local
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created

# A connection may be silent for the longest consume_timeout and this margin.
MARGIN = timedelta(seconds=10)

# Keepers are threads whose name begins with this prefix. They run no handlers, so their limits can
# be short. In seconds: the server closes a silent connection of a frozen keeper after the first,
# which frees its locks; a row that another transaction has locked delays the heartbeat by at most
# the second.
KEEPER_PREFIX = "ems-"
KEEPER_IDLE_SECONDS = 20
KEEPER_LOCK_SECONDS = 2

# In seconds. A firewall may forget a connection that is silent, and then drop its packets without
# an error. A silent connection is probed after the first, and lost when the other side has
# acknowledged nothing for the second. Linux would try for 15 minutes, and probe after 2 hours.
KEEPALIVE_SECONDS = 30
UNANSWERED_SECONDS = 60

# The alias that the calling thread claims from, if it is a worker or a keeper.
_thread = local()


def work_on(using: str) -> None:
    """Note that the calling thread works on ``using``.

    Its handlers may use other databases that this process consumes from, now and then. There it is
    as in any other thread of the project: see IdleLimit.
    """
    _thread.alias = using


class IdleLimit:
    """A limit for idle connections: kept between steps, closed by the server when silent.

    CONN_MAX_AGE is meant for web requests: it would reconnect for every claim. A frozen process
    may hold a row lock that others need; with a short wait_timeout the server frees it after the
    longest consume_timeout and MARGIN instead of hours. Threads that only wait close theirs before,
    and open it again on its next use. Threads that work on another alias keep what the project
    has set: a connection that they use seldom must not be closed under their handlers.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._limit = MARGIN
        self._in_force = local()
        self._given: dict[str, Any] = {}  # what the project has set

    def install(self) -> None:
        ours = {"CONN_MAX_AGE": None, "AUTOCOMMIT": True}
        settings = connections.settings[self._using]
        self._given = {name: settings[name] for name in ours}
        settings.update(ours)
        connection_created.connect(self._set)
        connections[self._using].close()

    def remove(self) -> None:
        """Undo ``install()``: another limit that is installed then finds what the project has."""
        connection_created.disconnect(self._set)
        connections.settings[self._using].update(self._given)
        connections[self._using].close()

    @property
    def patience(self) -> float:
        """Return after how many silent seconds a thread closes its connection by itself."""
        return self._limit.total_seconds() / 2

    def allow(self, timeout: timedelta) -> None:
        """Let this thread's connection be silent for handler calls of ``timeout``, too."""
        self._limit = max(self._limit, timeout + MARGIN)
        if getattr(self._in_force, "limit", self._limit) < self._limit:
            connections[self._using].close()

    def _set(self, *, connection: Any, **kwargs: Any) -> None:
        if connection.alias != self._using:
            return
        if getattr(_thread, "alias", self._using) != self._using:
            age = self._given["CONN_MAX_AGE"]
            connection.close_at = None if age is None else time.monotonic() + age
            return
        if connection.vendor != "mysql":
            return
        if current_thread().name.startswith(KEEPER_PREFIX):
            limit_keeper(connection=connection)
            return
        _keep_alive(connection.connection)
        with connection.cursor() as cursor:
            self._in_force.limit = self._limit
            seconds = math.ceil(self._limit.total_seconds())
            cursor.execute("SET SESSION wait_timeout = %s", [seconds])


def limit_keeper(*, connection: Any, **kwargs: Any) -> None:
    """Set the short limits of keepers, if this thread is one; a receiver of connection_created."""
    if connection.vendor != "mysql" or not current_thread().name.startswith(KEEPER_PREFIX):
        return
    _keep_alive(connection.connection)
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION wait_timeout = %s, SESSION innodb_lock_wait_timeout = %s",
            [KEEPER_IDLE_SECONDS, KEEPER_LOCK_SECONDS],
        )


def socket_of(driver: Any) -> Any:
    """Return what has the file descriptor of a driver's connection; None if it has no socket."""
    # mysqlclient has fileno() itself, PyMySQL has a socket.
    return driver if hasattr(driver, "fileno") else getattr(driver, "_sock", None)


def _keep_alive(driver: Any) -> None:
    """Let the system probe the socket of a driver's connection, where both permit it."""
    holder = socket_of(driver)
    if holder is None:
        return
    with socket.socket(fileno=os.dup(holder.fileno())) as same:
        if same.family not in (socket.AF_INET, socket.AF_INET6):
            return
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_SECONDS),
            ("TCP_KEEPINTVL", KEEPALIVE_SECONDS // 3),
            ("TCP_USER_TIMEOUT", UNANSWERED_SECONDS * 1000),
        ):
            if option := getattr(socket, name, None):  # other systems lack some
                same.setsockopt(socket.IPPROTO_TCP, option, value)

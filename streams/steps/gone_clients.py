"""Runs the step that ends the leases of clients whose connection the server has lost."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any

from django.db import connections

from streams.conf import LEASE_SECONDS, RENEW_SECONDS
from streams.database.retrying import retrying
from streams.database.sql import locks as sql
from streams.database.sql.dialect import execute, fetch
from streams.logs import event

logger = logging.getLogger("streams.maintenance")

# Seconds between two looks of a process.
LOOK_SECONDS = 1.0
# Seconds for which a lock is free when its client is taken for dead. A client that has lost its
# connection only takes the lock again before, and whoever shares the host of a process that has
# died reads its progress file before: that knows what was done.
FREE_SECONDS = 2.0
# So many clients have one look a second, by any of them.
CLIENTS_A_SECOND = 20


def kind_of(using: str) -> str:
    """Return which of the statements about locks the server knows."""
    connection: Any = connections[using]
    return sql.MARIADB if connection.mysql_is_mariadb else sql.MYSQL


class GoneClients:
    """What one process has seen of the locks of all clients, look by look.

    A free lock is a hint, and none where it may mislead: on a server that this process has not seen
    for a lease, since all locks are free after a restart or a failover; while its own lock is free;
    and when more locks are free than held, as after the restart of a proxy.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._server = ""
        self._since = 0.0
        # Since when the lock is free of a client, with the lease that it had then.
        self._free: dict[tuple[str, datetime], float] = {}
        self.pause = LOOK_SECONDS

    def step(self, own: str) -> int:
        """Look at the locks, and end the leases of clients that are gone; return how many.

        ``own`` is the client of this process.
        """
        now = time.monotonic()
        rows = retrying(fetch, self._using, self._using, sql.CLIENTS[kind_of(self._using)])
        server = rows[0][3] if rows else ""
        if server != self._server:
            self._server, self._since = server, now
            self._free = {}
        free = [(client, lease) for client, lease, session, _server in rows if session is None]
        held = {client for client, _lease, session, _server in rows if session is not None}
        is_known = now - self._since >= LEASE_SECONDS
        if not is_known or own not in held or len(free) > len(held):
            free = []
        self._free = {one: self._free.get(one, now) for one in free}
        self.pause = self._pause(len(rows))
        gone = [one for one, since in self._free.items() if now - since >= FREE_SECONDS]
        return sum(self._end(*one) for one in gone)

    def _pause(self, clients: int) -> float:
        """Return the seconds to the next look: all processes together look often enough."""
        if self._free:
            return LOOK_SECONDS
        if clients < 2:
            return RENEW_SECONDS  # there is nobody else
        return max(LOOK_SECONDS, min(RENEW_SECONDS, clients / CLIENTS_A_SECOND))

    def _end(self, client: str, lease: datetime) -> bool:
        """End the leases of the client, unless it has renewed them; return whether it has not."""
        of_it = [client, self._server, lease]
        if not retrying(execute, self._using, self._using, sql.END_LEASES, of_it):
            return False
        logger.warning(
            "The connection of %s is gone: its lease ends now",
            client,
            extra=event("client.gone", client=client, database=self._using),
        )
        return True

"""Holds a lock of the server while this process has its connection: free, it hints at a death."""

from __future__ import annotations

import logging
import select
import time
from typing import Any

from django.db import Error, connections

from streams.conf import LEASE_SECONDS, settings
from streams.database.retrying import transient
from streams.database.sql import locks as sql
from streams.database.sql.dialect import fetch
from streams.logs import event
from streams.models import Consumer
from streams.process.shared.client import Client
from streams.process.shared.connections import socket_of
from streams.steps.gone_clients import kind_of

logger = logging.getLogger("streams.heartbeat")

# Seconds between two looks whether the connection is there. Others take this client for dead when
# its lock has been free for FREE_SECONDS of steps/gone_clients.py.
LOOK_SECONDS = 0.25


class DeathLock:
    """The lock of a client, on the connection of its heartbeat.

    The row of the client names the server that has it, once it is taken: a lock that was never
    there is not missed. It is a hint only. Whoever is taken for dead by mistake loses its claims,
    as after a lease that has ended, and their messages are handled again.
    """

    def __init__(self, client: Client, using: str) -> None:
        self._client = client
        self._using = using
        self._wanted = settings().DEATH_LOCK and connections[using].vendor == "mysql"
        self._held: tuple[str, object] = ("", None)  # the client id, and the driver's connection
        self._server = ""  # which has the lock
        # Which client id has which server in its rows, and in which groups these are.
        self._noted: tuple[str, str, list[int]] = ("", "", [])
        self._session, self._check_at = 0, 0.0
        self._again_at = 0.0

    @property
    def held(self) -> bool:
        """Tell whether this client has its lock, as far as it knows."""
        return self._wanted and self._held[0] == self._client.client_id

    @property
    def pause(self) -> float:
        """Return the seconds to the next look."""
        return LOOK_SECONDS if self._wanted else float("inf")

    def keep(self) -> None:
        """Take the lock, again if the connection or the client id is another one."""
        if not self._wanted or time.monotonic() < self._again_at:
            return
        connection, id_ = connections[self._using], self._client.client_id
        if self._held == (id_, connection.connection) and not _ended(connection):
            self._check()
            if self._wanted:  # it may have joined a group
                self._note(id_, self._server)
            return
        if self._held[1] is connection.connection:
            connection.close()  # it has ended, or has the lock of an earlier id
        try:
            self._take(id_)
        except Error as error:
            if transient(error):
                raise
            self._give_up(str(error))

    def _take(self, id_: str) -> None:
        if fetch(self._using, sql.GALERA):
            self._give_up("a lock of Galera holds on one node only")
            return
        name = sql.lock_of(id_)
        ((taken, session, server),) = fetch(self._using, sql.TAKE[kind_of(self._using)], [name])
        if not taken:  # by a session of this process that the server has not given up yet
            self._again_at = time.monotonic() + 2 * LOOK_SECONDS
            return
        self._held, self._session = (id_, connections[self._using].connection), session
        self._server = server
        self._check_at = 0.0
        self._check()
        if self._wanted:
            self._note(id_, server)

    def _check(self) -> None:
        """Give up if the session that answers is another one than that which took the lock."""
        if time.monotonic() < self._check_at:
            return
        name = sql.lock_of(self._held[0])
        if fetch(self._using, sql.HELD, [name]) != [(self._session, self._session)]:
            self._give_up("another session answers: a proxy shares its connections among clients")
        self._check_at = time.monotonic() + LEASE_SECONDS

    def _note(self, id_: str, server: str) -> None:
        noted = id_, server, [*self._client.groups]
        if self._noted != noted:
            mine = Consumer.objects.using(self._using).filter(client_id=id_)
            mine.update(locked_on=server)
            self._noted = noted

    def _give_up(self, reason: str) -> None:
        self._note(self._client.client_id, "")
        self._wanted = False
        logger.warning(
            "No lock tells others that this process has died; its lease does: %s",
            reason,
            extra=event("death_lock.unavailable", database=self._using),
        )


def _ended(connection: Any) -> bool:
    """Tell whether the server has closed the connection, which waits for nothing now.

    Nothing is sent for it, unless something can be read: that is its end, nearly always.
    """
    source = socket_of(connection.connection)
    if source is None:
        return True
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    return bool(poll.poll(0)) and not connection.is_usable()

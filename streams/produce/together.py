"""Inserts by one statement what several threads send at the same time.

Who finds nobody inserting inserts at once, by its own connection. Whoever comes meanwhile waits for
that statement, and then the first of them inserts for all of them: nobody waits for a time, and an
idle system sends as without it. Who waits has no transaction, so each row is committed with the
statement that inserts it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from streams import conf
from streams.database.retrying import connection_lost, reply_lost
from streams.errors import SendOutcomeUnknown
from streams.produce.insert import CHUNK_BYTES, CHUNK_ROWS, insert_chunk
from streams.produce.outgoing import Placed

_of_thread = threading.local()


def always() -> None:
    """Let this thread send together with others, whatever the settings say."""
    _of_thread.on = True


def is_wanted(connection: Any) -> bool:
    """Tell whether a send by this connection may be inserted by another thread."""
    if not (conf.settings().SEND_TOGETHER or getattr(_of_thread, "on", False)):
        return False
    if getattr(_of_thread, "leads", False):
        return False  # sent by a wrapper of the statement: it would wait for itself
    return not connection.in_atomic_block and connection.get_autocommit()


class _Waiting:
    """A send that another thread may insert; its thread sleeps until ``turn`` is free."""

    __slots__ = ("leads", "message_id", "placed", "turn", "unknown")

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.message_id: int | None = None
        self.leads = False  # it is to insert, for itself and for those that wait with it
        self.unknown = False  # whether the statement was lost that may have inserted it
        self.turn = threading.Lock()
        self.turn.acquire()


class _Queue:
    """The sends to one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._inserting = False

    def insert(self, alias: str, placed: Placed, alone: Callable[[], int]) -> int:
        one = _Waiting(placed)
        with self._lock:
            one.leads = not self._inserting
            if one.leads:
                self._inserting = True
            else:
                self._waiting.append(one)
        if not one.leads:
            try:
                one.turn.acquire()
            except BaseException:  # such as Ctrl-C
                self._leave(one)
                raise
        if one.unknown:
            raise SendOutcomeUnknown
        if one.leads:
            self._lead(alias, one, alone)
        # Without an id the statement has failed, and inserted none: each does it by itself.
        return alone() if one.message_id is None else one.message_id

    def _leave(self, one: _Waiting) -> None:
        """Let nobody wait for a thread that has gone; its message may have been inserted."""
        with self._lock:
            if one.leads:
                self._pass_on()
            elif one in self._waiting:
                self._waiting.remove(one)

    def _lead(self, alias: str, one: _Waiting, alone: Callable[[], int]) -> None:
        together = [one]
        unknown = True  # also if this thread is ended by something else than an error
        _of_thread.leads = True
        try:
            with self._lock:
                together += self._taken(one.placed.size)
            if len(together) == 1:
                ids = [alone()]
            else:
                ids = insert_chunk(alias, [each.placed for each in together])
            unknown = False
            for each, id_ in zip(together, ids, strict=True):
                each.message_id = id_
        except (DatabaseError, InterfaceError) as error:
            unknown = reply_lost(error)
            if unknown or len(together) == 1:
                raise
            if connection_lost(error):
                connections[alias].close()
        finally:
            _of_thread.leads = False
            with self._lock:
                self._pass_on()
            for each in together[1:]:
                each.unknown = unknown
                each.turn.release()

    def _taken(self, size: int) -> list[_Waiting]:
        """Take from those that wait, in the order in which they came, what one statement holds."""
        number = 0
        for each in self._waiting[: CHUNK_ROWS - 1]:
            size += each.placed.size
            if size > CHUNK_BYTES:
                break
            number += 1
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken

    def _pass_on(self) -> None:
        """Let the first of those that wait insert next."""
        if self._waiting:
            first = self._waiting.pop(0)
            first.leads = True
            first.turn.release()
        else:
            self._inserting = False


_queues: dict[str, _Queue] = {}
# A fork has only the thread that called it.
os.register_at_fork(after_in_child=_queues.clear)


def insert(alias: str, placed: Placed, alone: Callable[[], int]) -> int:
    """Insert a message, perhaps together with others; return its id.

    ``alone`` inserts it by this thread's connection and returns the id. Raises what the database
    does, and SendOutcomeUnknown if another thread has lost the reply.
    """
    return _queues.setdefault(alias, _Queue()).insert(alias, placed, alone)

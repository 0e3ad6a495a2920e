"""Writes by one thread what several write at the same time: sends by one statement.

Who finds nobody writing writes at once, by its own connection. Whoever comes meanwhile waits for
that, and then the first of them writes for all of them: nobody waits for a time, and an idle system
writes as without it. Who waits has no transaction, so what it writes is committed when it goes on.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

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
    wanted = conf.settings().SEND_TOGETHER or getattr(_of_thread, "on", False)
    return bool(wanted) and is_possible(connection)


def is_possible(connection: Any) -> bool:
    """Tell whether another thread may write what this one would write by this connection."""
    if getattr(_of_thread, "leads", False):
        return False  # sent by a wrapper of the statement: it would wait for itself
    return not connection.in_atomic_block and connection.get_autocommit()


class Sized(Protocol):
    """What is written; ``size`` is in bytes."""

    @property
    def size(self) -> int: ...


One = TypeVar("One", bound=Sized)
Written = TypeVar("Written")


class _Waiting(Generic[One, Written]):
    """What another thread may write; its thread sleeps until ``turn`` is free."""

    __slots__ = ("leads", "one", "turn", "unknown", "written")

    def __init__(self, one: One) -> None:
        self.one = one
        self.written: Written | None = None
        self.leads = False  # it is to write, for itself and for those that wait with it
        self.unknown = False  # whether the reply was lost to what may have written it
        self.turn = threading.Lock()
        self.turn.acquire()


class Queue(ABC, Generic[One, Written]):
    """What the threads of this process write to one database."""

    # Whether it may be written again where the reply to the first time was lost.
    repeatable = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting[One, Written]] = []
        self._writing = False

    @abstractmethod
    def write_all(self, alias: str, several: list[One]) -> list[Written]:
        """Write all or nothing; return what is said of each."""

    def write(self, alias: str, item: One, alone: Callable[[], Written]) -> Written:
        one: _Waiting[One, Written] = _Waiting(item)
        with self._lock:
            one.leads = not self._writing
            if one.leads:
                self._writing = True
            else:
                self._waiting.append(one)
        if not one.leads:
            try:
                one.turn.acquire()
            except BaseException:  # such as Ctrl-C
                self._leave(one)
                raise
        if one.unknown and not self.repeatable:
            raise SendOutcomeUnknown
        if one.leads:
            self._lead(alias, one, alone)
        # Where nothing is known of it nothing was written, or it may be again: by its own thread.
        return alone() if one.written is None else one.written

    def _leave(self, one: _Waiting[One, Written]) -> None:
        """Let nobody wait for a thread that has gone; its message may have been inserted."""
        with self._lock:
            if one.leads:
                self._pass_on()
            elif one in self._waiting:
                self._waiting.remove(one)

    def _lead(self, alias: str, one: _Waiting[One, Written], alone: Callable[[], Written]) -> None:
        together = [one]
        unknown = True  # also if this thread is ended by something else than an error
        _of_thread.leads = True
        try:
            with self._lock:
                together += self._taken(one.one.size)
            if len(together) == 1:
                said = [alone()]
            else:
                said = self.write_all(alias, [each.one for each in together])
            unknown = False
            for each, written in zip(together, said, strict=True):
                each.written = written
        except (DatabaseError, InterfaceError) as error:
            unknown = reply_lost(error) and not self.repeatable
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

    def _taken(self, size: int) -> list[_Waiting[One, Written]]:
        """Take from those that wait, in the order in which they came, what is written at once."""
        number = 0
        for each in self._waiting[: CHUNK_ROWS - 1]:
            size += each.one.size
            if size > CHUNK_BYTES:
                break
            number += 1
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken

    def _pass_on(self) -> None:
        """Let the first of those that wait write next."""
        if self._waiting:
            first = self._waiting.pop(0)
            first.leads = True
            first.turn.release()
        else:
            self._writing = False


class _Sends(Queue[Placed, int]):
    """The sends to one database, by one INSERT; each gets the id of its message."""

    def write_all(self, alias: str, several: list[Placed]) -> list[int]:
        return insert_chunk(alias, several)


_queues: dict[str, _Sends] = {}
# A fork has only the thread that called it.
os.register_at_fork(after_in_child=_queues.clear)


def insert(alias: str, placed: Placed, alone: Callable[[], int]) -> int:
    """Insert a message, perhaps together with others; return its id.

    ``alone`` inserts it by this thread's connection and returns the id. Raises what the database
    does, and SendOutcomeUnknown if another thread has lost the reply.
    """
    return _queues.setdefault(alias, _Sends()).write(alias, placed, alone)

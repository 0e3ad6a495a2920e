"""Finds out which databases answer, and waits for none that is away or hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar

from django.db import Error, OperationalError, connections

from streams.database.retrying import transient
from streams.sharding import aliases, is_sharded

T = TypeVar("T")

# In seconds: how long a request waits for the first answer of a database.
PATIENCE = 1.0


class Answering:
    """Asks databases for a request, and collects those that have not answered, in ``away``."""

    def __init__(self) -> None:
        self.away: list[str] = []

    def ask(self, alias: str, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns; None if the database is away.

        Raises the Error if there is no other database, or no other one has answered.
        """
        if not is_sharded():
            return work()
        try:
            _make_sure(alias)
            return work()
        except Error as error:
            if not transient(error):
                raise
            self.away.append(alias)
            if len(self.away) == len(aliases()):
                raise
            return None


class _Look(Thread):
    """Connects to a database. It may hang for minutes, as when a host has lost its power."""

    def __init__(self, alias: str) -> None:
        super().__init__(name=f"ems-http-look-{alias}", daemon=True)
        self._alias = alias
        self._error: BaseException | None = None
        self._until = time.monotonic() + PATIENCE

    def run(self) -> None:
        try:
            with connections[self._alias].cursor() as cursor:
                cursor.execute("SELECT 1")
        except BaseException as error:  # noqa: BLE001 - who waits for it raises it
            self._error = error
        finally:
            connections.close_all()

    def answer(self) -> None:
        self.join(max(0.0, self._until - time.monotonic()))
        if self.is_alive():
            raise OperationalError(2013, f"{self._alias} does not answer")
        if self._error:
            raise self._error


# By alias: the newest look. While it hangs, no request begins another, and none waits.
_looks: dict[str, _Look] = {}
_beginning = Lock()


def _make_sure(alias: str) -> None:
    """Raise the Error of a database that does not answer within PATIENCE."""
    with _beginning:
        look = _looks.get(alias)
        if look is None or not look.is_alive():
            look = _looks[alias] = _Look(alias)
            look.start()
    look.answer()


def _forget() -> None:
    """Forget the threads in a child process: a fork has only the one that called it."""
    global _beginning
    _looks.clear()
    _beginning = Lock()


os.register_at_fork(after_in_child=_forget)

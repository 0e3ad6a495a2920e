"""Tells whether a thread waits for the database, for the main thread to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.db import connections


class DatabaseWork:
    """The statements of one thread, counted while it works with the database.

    A count that stands still means that the database does not answer: to a statement, to a COMMIT
    or to a new connection.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._count = 0
        self._under_way = False

    @property
    def count(self) -> int | None:
        """Return the count so far; None while the thread does no database work."""
        return self._count if self._under_way else None

    @contextmanager
    def under_way(self) -> Iterator[None]:
        # Not by execute_wrapper(), which removes the last one at its end: a new connection may get
        # others in between.
        wrappers = connections[self._using].execute_wrappers
        wrappers.append(self._counted)
        self._count += 1
        self._under_way = True
        try:
            yield
        finally:
            self._under_way = False
            wrappers.remove(self._counted)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let the thread do no database work in the block, which is inside ``under_way()``."""
        self._under_way = False
        try:
            yield
        finally:
            self._count += 1
            self._under_way = True

    def _counted(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self._count += 1
        try:
            return execute(*arguments)
        finally:
            self._count += 1


class Watched(Protocol):
    """A thread that works with the database."""

    @property
    def statements(self) -> int | None: ...


class Silence:
    """For how long the database has not answered threads, in looks of the main thread."""

    def __init__(self) -> None:
        # For each thread how many statements it has made, and the seconds since the last one.
        self._seen: dict[Watched, tuple[int | None, float]] = {}

    def seconds(self, thread: Watched, look: float) -> float:
        """Return the seconds without an answer; ``look`` is the time since the look before."""
        count = thread.statements
        before, silent = self._seen.get(thread, (None, 0.0))
        silent = silent + look if count is not None and count == before else 0.0
        self._seen[thread] = count, silent
        return silent

"""Opens second database sessions for tests, in the same thread or in other threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


class Session:
    """Holds a second connection to the same test database, with its own transaction state.

    ``session.connection`` is Django's wrapper, for raw statements. Inside ``with
    session.active():`` the ORM of this thread runs on it too, so a test can interleave two
    transactions step by step, without threads::

        other = second_connection()
        with other.active():
            transaction.set_autocommit(False)
            send("orders", 1)
        assert not Message.objects.exists()      # the first session does not see it yet
        with other.active():
            transaction.commit()
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self.connection: BaseDatabaseWrapper = connections.create_connection(alias)

    @contextlib.contextmanager
    def active(self) -> Iterator[BaseDatabaseWrapper]:
        """Make this session the one that the alias stands for, in this thread."""
        first = connections[self.alias]
        connections[self.alias] = self.connection
        try:
            yield self.connection
        finally:
            connections[self.alias] = first

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one raw statement; return its rows, if it has any."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        # Closed instead of rolled back: in any state the server then frees its locks.
        self.connection.close()


class Threads:
    """Runs functions in threads that have their own connections; see the fixture."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix="test")

    def __call__(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Start the function; ``.result(timeout)`` of what is returned waits for it."""
        return self._pool.submit(self._run, function, *arguments)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _run(function: Callable[..., T], *arguments: object) -> T:
        try:
            return function(*arguments)
        finally:
            connections.close_all()

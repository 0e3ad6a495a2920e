"""Puts a function around each statement and each COMMIT of this process, in all its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

COMMIT = "COMMIT"

Around = Callable[[BaseDatabaseWrapper, str, Callable[[], Any]], Any]


@contextmanager
def watching(around: Around) -> Iterator[None]:
    """Call ``around(connection, text, work)`` for each statement; it returns what ``work()`` does.

    The text of a COMMIT is COMMIT. BEGIN and ROLLBACK are left out: a process that dies before or
    after one leaves the same rows.
    """
    cursors: Any = CursorWrapper
    wrappers: Any = BaseDatabaseWrapper
    execute, commit = cursors._execute_with_wrappers, wrappers._commit

    def watched_execute(cursor: Any, sql: Any, *arguments: Any, **named: Any) -> Any:
        work = lambda: execute(cursor, sql, *arguments, **named)  # noqa: E731
        return around(cursor.db, str(sql), work)

    def watched_commit(connection: Any) -> Any:
        if connection.connection is None:
            return commit(connection)
        return around(connection, COMMIT, lambda: commit(connection))

    cursors._execute_with_wrappers, wrappers._commit = watched_execute, watched_commit
    try:
        yield
    finally:
        cursors._execute_with_wrappers, wrappers._commit = execute, commit

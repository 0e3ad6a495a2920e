"""Hold real code between two of its statements, and see whether others wait for its locks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from django.db import OperationalError, connection

from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

LOCK_WAIT_TIMEOUT, DEADLOCK = 1205, 1213


@contextlib.contextmanager
def held_before(
    in_thread: Threads, statement: str, work: Callable[[], Any]
) -> Iterator[Future[Any]]:
    """Run ``work`` in a thread, and hold it just before the statement that begins like this.

    Inside the block it has every lock that it takes up to there. It goes on when the block ends.
    """
    reached, go_on = threading.Event(), threading.Event()

    def wrapper(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if sql.startswith(statement):
            reached.set()
            assert go_on.wait(PATIENCE_SECONDS)
        return execute(sql, parameters, many, context)

    def run() -> Any:
        with connection.execute_wrapper(wrapper):
            return work()

    future = in_thread(run)
    future.add_done_callback(lambda _: reached.set())
    try:
        assert reached.wait(PATIENCE_SECONDS)
        if future.done():
            future.result()
            raise AssertionError(f"it never came to {statement!r}")
        yield future
    finally:
        go_on.set()
    future.result(PATIENCE_SECONDS)


@contextlib.contextmanager
def no_lock_waits() -> Iterator[None]:
    """Fail if a statement of this block waits for a lock.

    It would wait for as long as the block runs, so it would run into this session's time limit;
    EMS repeats such a statement, which is why the error itself is not enough.
    """
    waited: list[str] = []

    def wrapper(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, parameters, many, context)
        except OperationalError as error:
            if error.args[0] in (LOCK_WAIT_TIMEOUT, DEADLOCK):
                waited.append(f"{error}: {sql[:200]}")
                # Not to be repeated: the test is over.
                raise AssertionError(waited[0]) from error
            raise

    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with connection.execute_wrapper(wrapper):
        yield
    assert not waited


def wait_until_one_waits(database: str, work: Future[Any] | None = None) -> None:
    """Wait until a transaction in this database waits for a row lock.

    Fails at once if ``work``, which should wait, has ended.
    """
    limit = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, limit.set)
    timer.start()
    try:
        while not _waiting(database):
            assert work is None or not work.done(), "it does not wait for a lock"
            # The server refreshes what it tells of locks only after 0.1 s without a look.
            assert not limit.wait(0.15), "nobody waits for a lock"
    finally:
        timer.cancel()


def _waiting(database: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.innodb_trx t"
            " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
            " WHERE t.trx_state = 'LOCK WAIT' AND p.db = %s",
            [database],
        )
        return bool(cursor.fetchone()[0])

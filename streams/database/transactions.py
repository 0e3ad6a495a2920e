"""Opens EMS's own transactions at READ COMMITTED, and tells what the caller has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper


def in_test_case(using: str) -> bool:
    """Tell whether a Django TestCase wraps this connection: then nothing is ever committed."""
    return any(
        getattr(block, "_from_testcase", False) for block in connections[using].atomic_blocks
    )


def in_own_block(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether an atomic block is open, but for that of a TestCase, which all aliases have."""
    blocks = getattr(connection, "atomic_blocks", [])
    return not all(getattr(block, "_from_testcase", False) for block in blocks)


def manual(using: str) -> bool:
    """Tell whether autocommit is off and the caller commits; a transaction is then always open."""
    return not connections[using].in_atomic_block and not connections[using].get_autocommit()


def in_transaction(using: str) -> bool:
    """Tell whether the caller can still roll back what is written now."""
    connection = connections[using]
    return connection.in_atomic_block or not connection.get_autocommit()


def sees_the_past(using: str) -> bool:
    """Tell whether a plain read misses what others committed since the transaction's first read.

    At SERIALIZABLE such a read also locks what it reads.
    """
    connection = connections[using]
    if connection.vendor != "mysql" or not in_transaction(using) or in_test_case(using):
        return False
    return getattr(connection, "isolation_level", None) != "read committed"


def supports_other_connections(using: str) -> bool:
    """Tell whether a second connection could write while this one has a transaction open."""
    return connections[using].vendor != "sqlite"


def can_commit_apart(using: str) -> bool:
    """Tell whether a transaction is open, and a second connection could commit beside it."""
    return in_transaction(using) and supports_other_connections(using) and not in_test_case(using)


@contextmanager
def committing(using: str) -> Iterator[str]:
    """Commit what is done in the block, also where the project has AUTOCOMMIT off; yield ``using``.

    Commands and tasks use it, since nobody commits after them. The block runs on a new
    connection: a transaction that the caller has open stays open, for the caller to commit. In
    an atomic block (a TestCase) the work is a part of that one.
    """
    given = connections[using]
    if given.in_atomic_block or given.settings_dict["AUTOCOMMIT"]:
        yield using
        return
    with new_connection(using):
        yield using


@contextmanager
def new_connection(using: str) -> Iterator[None]:
    """Run the block on a connection of its own, which commits each statement; then close it."""
    given = connections[using]
    mine = connections.create_connection(using)
    # A copy, which holds for each reconnect: all threads share the original dict.
    mine.settings_dict = {**given.settings_dict, "AUTOCOMMIT": True}
    connections[using] = mine
    try:
        yield
    finally:
        mine.close()
        connections[using] = given


def after_commit(work: Callable[[], object], using: str) -> None:
    """Run ``work`` when the open transaction is committed; at once if none is open.

    After a rollback it is not run. Where the caller commits by hand Django cannot tell: then it is
    run at once. What it raises is logged, and nothing more.
    """
    if manual(using):
        work()
    else:
        transaction.on_commit(work, using=using, robust=True)


@contextmanager
def own_transaction(using: str) -> Iterator[BaseDatabaseWrapper]:
    """Open a transaction at READ COMMITTED, whatever the project's connections are set to.

    Under REPEATABLE READ a claim would block inserts, and a pass of the sequencer would not see
    what was committed since its snapshot. Inside an open transaction (``atomic=True``, or a
    TestCase) it is a savepoint.
    """
    connection = connections[using]
    if connection.vendor != "mysql" or in_transaction(using):
        with transaction.atomic(using=using), latest_rows(using):
            yield connection
        return
    connection.ensure_connection()
    if getattr(connection, "isolation_level", None) != "read committed":
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    with _Begun(using, savepoint=True, durable=False):
        yield connection


class _Begun(transaction.Atomic):
    """A transaction that one statement begins.

    Django turns autocommit off before a transaction and on after it. The transactions of a handler
    stay as Django makes them: after a deadlock that the handler swallows, autocommit would be on.
    """

    def __enter__(self) -> None:
        connection: Any = connections[str(self.using)]
        # Django asks for this name when it opens a transaction. The driver knows from the server's
        # reply to the COMMIT that autocommit is on, so that nothing is sent at the end either.
        connection._start_transaction_under_autocommit = partial(_begin, connection)
        try:
            super().__enter__()
        finally:
            del connection._start_transaction_under_autocommit


def _begin(connection: Any) -> None:
    with connection.wrap_database_errors:
        connection.connection.begin()


@contextmanager
def latest_rows(using: str) -> Iterator[None]:
    """Let EMS change rows, in the open transaction, that others have changed since its snapshot.

    MariaDB from 11.6 on refuses that at REPEATABLE READ and SERIALIZABLE: error 1020 rolls the
    whole transaction back. Every write of EMS has its condition in its WHERE, so it needs no such
    check. It stays on for the statements of the caller.
    """
    connection: Any = connections[using]
    if not _refuses_changed_rows(connection):
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_snapshot_isolation = OFF")
    try:
        yield
    finally:
        # By the driver: Django refuses statements in a transaction that is to be rolled back.
        if connection.connection is not None:
            try:
                with closing(connection.connection.cursor()) as driver:
                    driver.execute("SET SESSION innodb_snapshot_isolation = ON")
            except connection.Database.Error:
                connection.close()  # it is lost, or its state is unknown


def _refuses_changed_rows(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor != "mysql" or not in_transaction(connection.alias):
        return False
    # READ COMMITTED is Django's default. Each of its statements has a snapshot of its own.
    if getattr(connection, "isolation_level", None) == "read committed":
        return False
    if not getattr(connection, "mysql_is_mariadb", False):
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION VARIABLES LIKE 'innodb_snapshot_isolation'")
        found = cursor.fetchone()  # None on older servers
    return found is not None and found[1] == "ON"


@contextmanager
def short_lock_waits(using: str, seconds: int) -> Iterator[None]:
    """Wait at most ``seconds`` for a row that another transaction has locked.

    Use it around a transaction whose locks others wait for. After the wait the transaction is
    rolled back, and may be repeated.
    """
    connection = connections[using]
    if connection.vendor != "mysql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        (before,) = cursor.fetchone()
        cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [seconds])
    try:
        yield
    finally:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [before])
        except Error:
            connection.close()  # it is lost, or its state is unknown: the next use opens another

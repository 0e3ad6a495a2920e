"""EMS's own transactions: READ COMMITTED, and repeated where the outcome is known or checked."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import Error, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Server and client error numbers of MySQL and MariaDB.
# 1412: the table was truncated or altered since the snapshot of a read.
DEADLOCK_OR_WAIT = {1020, 1205, 1213, 1412, 3101}
# The connection is gone, or the server is leaving: connect anew. 1290 and 1836: read-only after a
# failover. 2026: the end of a TLS connection. 2005: the name of the host is not known, as of a
# container that is down.
CANNOT_CONNECT = {1040, 1129, 1203, 1226}  # too many connections, for the moment
CONNECTION_LOST = {1047, 1053, 1290, 1836, 1927, 2002, 2003, 2005, 2006, 2013, 2026, 2055, 4031}

MAX_BACKOFF_SECONDS = 1.0


def in_test_case(using: str) -> bool:
    """Whether a Django TestCase wraps this connection: then nothing commits, ever."""
    return any(
        getattr(block, "_from_testcase", False) for block in connections[using].atomic_blocks
    )


def manual(using: str) -> bool:
    """Whether the caller commits by hand (autocommit off): then a transaction is always open."""
    return not connections[using].in_atomic_block and not connections[using].get_autocommit()


def in_transaction(using: str) -> bool:
    """Whether what is written now can still be rolled back by the caller."""
    connection = connections[using]
    return connection.in_atomic_block or not connection.get_autocommit()


def sees_the_past(using: str) -> bool:
    """Whether a plain read shows what was there when the caller's transaction began, and not what
    others have committed since; at SERIALIZABLE it also locks what it reads."""
    connection = connections[using]
    if connection.vendor != "mysql" or not in_transaction(using) or in_test_case(using):
        return False
    return getattr(connection, "isolation_level", None) != "read committed"


def supports_other_connections(using: str) -> bool:
    """Whether a second connection could write while this one has a transaction open."""
    return connections[using].vendor != "sqlite"


@contextmanager
def committing(using: str) -> Iterator[str]:
    """What is done in here is committed, also where the project has AUTOCOMMIT off; yields the
    alias.

    For commands and tasks, after which nobody commits. It is done on a connection of its own: what
    the caller has open stays open, and is the caller's to commit. In an atomic block (a TestCase)
    it is a part of that one.
    """
    given = connections[using]
    if given.in_atomic_block or given.settings_dict["AUTOCOMMIT"]:
        yield using
        return
    mine = connections.create_connection(using)
    # For every time that it connects; the dict itself is that of all threads.
    mine.settings_dict = {**given.settings_dict, "AUTOCOMMIT": True}
    connections[using] = mine
    try:
        yield using
    finally:
        mine.close()
        connections[using] = given


@contextmanager
def own_transaction(using: str) -> Iterator[BaseDatabaseWrapper]:
    """A transaction at READ COMMITTED, whatever the project's connections are set to.

    Under REPEATABLE READ a claim would block inserts, and a pass of the sequencer would not see
    what was committed since its snapshot. Inside an open transaction (``atomic=True``, or a
    TestCase) it is a savepoint.
    """
    connection = connections[using]
    if connection.vendor != "mysql" or in_transaction(using):
        with transaction.atomic(using=using):
            yield connection
        return
    connection.ensure_connection()
    if getattr(connection, "isolation_level", None) != "read committed":
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    with transaction.atomic(using=using):
        yield connection


@contextmanager
def short_lock_waits(using: str, seconds: int) -> Iterator[None]:
    """Wait no longer for a row that somebody holds: for work that keeps others from theirs.

    Around a transaction, which is rolled back then and may be repeated.
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
            connection.close()  # it is gone, or of an unknown state: the next use opens another


def error_number(error: BaseException) -> int | None:
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None


def tables_missing(error: BaseException) -> bool:
    """Whether the database has no tables of EMS (the host's own may be missing, too)."""
    text = str(error)
    return (error_number(error) == 1146 and ".ems_" in text) or "no such table: ems_" in text


def connection_lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more; what it was doing may or may not be done."""
    if isinstance(error, InterfaceError):
        return True
    return isinstance(error, Error) and error_number(error) in CONNECTION_LOST


def held_by_others(error: BaseException, using: str) -> bool:
    """Whether EMS's own work has failed because of locks, so that it may do other work first.

    Inside an open transaction it may not: the error is its owner's.
    """
    return error_number(error) in DEADLOCK_OR_WAIT and not in_transaction(using)


def transient(error: BaseException) -> bool:
    """Whether EMS may do its own work again after this error."""
    if connection_lost(error):
        return True
    if not isinstance(error, Error):
        return False
    if error_number(error) in CANNOT_CONNECT:
        return True
    locked = isinstance(error, OperationalError) and "database is locked" in str(error)
    return locked or error_number(error) in DEADLOCK_OR_WAIT


def retrying(work: Callable[[], T], using: str, *, patience: float = 30.0) -> T:
    """Do EMS's own ``work``, again after a deadlock, a lock wait or a lost connection.

    ``work`` must be safe to repeat after a commit whose reply was lost. Inside an open
    transaction nothing is repeated: it is the owner's. After ``patience`` seconds of failures
    the last error is raised.
    """
    connection = connections[using]
    # By hand, too: without a connection, nothing is open yet.
    by_hand = connection.connection is not None and not connection.autocommit
    owned = connection.in_atomic_block or by_hand
    started = time.monotonic()
    pause = 0.01
    while True:
        try:
            return work()
        except Error as error:
            waited = time.monotonic() - started
            if owned or not transient(error) or waited > patience:
                raise
            if connection_lost(error):
                connection.close()
            logger.info("EMS repeats %s after %s", getattr(work, "__qualname__", work), error)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

"""Tells which database errors are transient, and repeats EMS's own work after them."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar, TypeVarTuple

from django.db import Error, InterfaceError, OperationalError, connections

from streams.database.transactions import in_transaction
from streams.logs import event
from streams.telemetry import count

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
logger = logging.getLogger("streams.transactions")

# Server and client error numbers of MySQL and MariaDB.
# 1412: the table was truncated or altered since the snapshot of a read.
DEADLOCK_OR_WAIT = {1020, 1205, 1213, 1412, 3101}
# The statement was ended, by KILL QUERY or by a limit of its time; the connection is as it was.
INTERRUPTED = {1317, 1969, 3024}
# The server has too many connections now. 9001: ProxySQL reaches no server.
CANNOT_CONNECT = {1040, 1129, 1203, 1226, 9001}
# The connection is gone, or the server is shutting down: a new connection is needed. 1290, 1836 and
# 1874: the server is read-only, as after a failover. 3032: it is offline. 2026: a TLS session has
# ended. 2005: the name of the host is unknown, as that of a stopped container. 2007: it was killed
# before its greeting. 1158 … 1161: the server has ended it because it read or wrote too slowly, as
# when this process was stopped a while. 4094: the group is choosing another primary.
CONNECTION_LOST = {
    *(1047, 1053, 1158, 1159, 1160, 1161, 1290, 1836, 1874, 1927),
    *(2002, 2003, 2005, 2006, 2007, 2013, 2026, 2055, 3032, 4031, 4094),
}
# The connection broke while the server may have executed the statement. 2006 is not among them: the
# statement did not leave this process. 2026 comes from a broken TLS connection.
REPLY_LOST = {1053, 1927, 2013, 2026, 2055}
# A savepoint is gone: its transaction was rolled back or committed meanwhile.
NO_SUCH_SAVEPOINT = 1305

MAX_BACKOFF_SECONDS = 1.0
# For how many seconds work is repeated. A thread that goes on by itself after an error sets fewer.
PATIENCE: ContextVar[float] = ContextVar("patience", default=30.0)


def error_number(error: BaseException) -> int | None:
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None


def tables_missing(error: BaseException) -> bool:
    """Tell whether the error says that a table of EMS is missing, not one of the host project."""
    text = str(error)
    return (error_number(error) == 1146 and ".ems_" in text) or "no such table: ems_" in text


def connection_lost(error: BaseException) -> bool:
    """Tell whether the connection is lost; its last statement may or may not be done."""
    if isinstance(error, InterfaceError):
        return True
    return isinstance(error, Error) and error_number(error) in CONNECTION_LOST


def reply_lost(error: BaseException | None) -> bool:
    """Tell whether the error, or an earlier one in its chain, means that the reply was lost.

    Django reconnects at the end of a transaction; if that fails too, its error comes last.
    """
    while error and error_number(error) not in REPLY_LOST:
        error = error.__context__
    return error is not None


def held_by_others(error: BaseException, using: str) -> bool:
    """Tell whether EMS's own work has failed because of locks, so that it may do other work first.

    Inside an open transaction this is False: the error belongs to the owner of the transaction.
    """
    return error_number(error) in DEADLOCK_OR_WAIT and not in_transaction(using)


def reason(error: BaseException) -> str:
    """Return why a transaction is repeated, as the metrics call it: ``connection`` or ``lock``."""
    lost = connection_lost(error) or error_number(error) in CANNOT_CONNECT
    return "connection" if lost else "interrupted" if error_number(error) in INTERRUPTED else "lock"


def transient(error: BaseException) -> bool:
    """Tell whether EMS may do its own work again after this error."""
    if connection_lost(error):
        return True
    if not isinstance(error, Error):
        return False
    if error_number(error) in CANNOT_CONNECT | INTERRUPTED:
        return True
    locked = isinstance(error, OperationalError) and "database is locked" in str(error)
    return locked or error_number(error) in DEADLOCK_OR_WAIT


def retrying(work: Callable[[*Ts], T], using: str, *args: *Ts, patience: float | None = None) -> T:
    """Do EMS's own ``work(*args)``, again after a deadlock, a lock wait or a lost connection.

    ``work`` must be safe to repeat after a commit whose reply was lost. Inside an open
    transaction nothing is repeated: it is the owner's. After ``patience`` seconds of failures,
    by default the PATIENCE of the thread, the last error is raised. What needs keywords is a
    lambda: a ``partial`` of a queryset's method would be written to the log with the rows, read
    for it.
    """
    most = PATIENCE.get() if patience is None else patience
    connection = connections[using]
    # A transaction is also open with autocommit off, but not before there is a connection.
    by_hand = connection.connection is not None and not connection.autocommit
    owned = connection.in_atomic_block or by_hand
    started = time.monotonic()
    pause = 0.01
    while True:
        try:
            return work(*args)
        except Error as error:
            waited = time.monotonic() - started
            if owned or not transient(error) or waited > most:
                raise
            if connection_lost(error):
                connection.close()
            count("ems_transactions_repeated_total", reason(error))
            logger.info(
                "EMS repeats %s after %s",
                *(getattr(work, "__qualname__", work), error),
                extra=event("transaction.repeated", error=type(error).__name__, database=using),
            )
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

"""Records what was done exactly once, by a row in the transaction that does it."""

from __future__ import annotations

import sqlite3

from sparkjobs.config import MYSQL
from sparkjobs.database import NOW, Connection, execute, fetch, vendor_of
from sparkjobs.errors import WriteRefused

# The local property by which Spark tells tasks and jobs the id of their streaming query.
QUERY_ID = "sql.streaming.queryId"


def take(connection: Connection, name: str, batch: int = 0) -> bool:
    """Record, inside a transaction, that this batch is done; return False if it was before.

    A second process with the same batch waits for the outcome. Only the newest two batches are
    kept, since Spark never repeats an older one.
    """
    try:
        execute(
            connection,
            "INSERT INTO `ems_monitoring_ledger` (`name`, `batch`, `done_at`)"  # noqa: S608
            f" VALUES (%s, %s, {NOW[vendor_of(connection)]})",
            [name, batch],
        )
    except _duplicate(connection):
        return False
    execute(
        connection,
        "DELETE FROM `ems_monitoring_ledger` WHERE `name` = %s AND `batch` < %s",
        [name, batch - 1],
    )
    return True


def take_newest(connection: Connection, name: str, batch: int) -> bool:
    """Record the batch; return False if it was done before. Raises WriteRefused for an old one.

    Spark only ever repeats the newest batch of a checkpoint. Another one that is in the ledger may
    be of an old checkpoint, and hold other rows this time.
    """
    is_new = take(connection, name, batch)
    later = "SELECT MAX(`batch`) FROM `ems_monitoring_ledger` WHERE `name` = %s"
    ((newest,),) = fetch(connection, later, [name])
    if newest > batch:
        raise WriteRefused(
            f"batch {newest} of {name} was sent, so batch {batch} is of an old checkpoint: what it"
            " holds may be sent already, or not; go on with a new checkpoint"
        )
    return is_new


def _duplicate(connection: Connection) -> type[Exception]:
    if vendor_of(connection) == MYSQL:
        from MySQLdb import IntegrityError

        return IntegrityError  # type: ignore[no-any-return]
    return sqlite3.IntegrityError

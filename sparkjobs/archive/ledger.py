"""Writes batches into the database exactly once, by a ledger row in the same transaction.

Spark gives a batch to foreachBatch again if it was killed before it could record that the batch is
done. The ledger row says whether the rows of the batch are written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkjobs.config import MYSQL, Config
from sparkjobs.database import NOW, Connection, connected, execute, transaction, vendor_of
from sparkjobs.errors import BadOption

Write = Callable[[Connection, Any], None]

QUERY_ID = "sql.streaming.queryId"


def into_database(config: Config, write: Write) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that calls ``write(connection, arrow_table)`` per batch.

    The batch is collected on the driver, so aggregate it before. ``write`` must not commit. The
    checkpoint numbers the batches, and its query id is the name in the ledger: a new checkpoint
    writes all batches again, and one that is kept never writes a batch twice. Raises BadOption
    outside foreachBatch.
    """

    def each(frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise BadOption("into_database() is for foreachBatch: here is no streaming query")
        table: pa.Table = frame.toArrow()  # before the transaction: it holds locks
        with connected(config) as connection, transaction(connection):
            if take(connection, f"stream {query}", batch):
                write(connection, table)

    return each


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


def _duplicate(connection: Connection) -> type[Exception]:
    if vendor_of(connection) == MYSQL:
        from MySQLdb import IntegrityError

        return IntegrityError  # type: ignore[no-any-return]
    return sqlite3.IntegrityError

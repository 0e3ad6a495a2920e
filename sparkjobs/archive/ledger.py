"""Exactly once into the database: a ledger row in the transaction that writes the rows.

Spark gives a batch to foreachBatch again when it was killed before it could note that it is done;
the ledger row says whether its rows are there.
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
    """A function for foreachBatch: ``write(connection, arrow_table)`` is done once a batch.

    The batch is gathered on the driver: aggregate before. ``write`` must not commit. Batches are
    counted by the checkpoint, whose query id is the name in the ledger: a new checkpoint begins
    anew, a checkpoint that is kept never writes twice.
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
    """Inside a transaction: note that this batch is done; False if it is noted already.

    Whoever tries the same at the same time waits for the outcome. Only the newest two batches are
    kept: Spark never repeats an older one.
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

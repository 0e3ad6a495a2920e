"""Writes batches into the database exactly once, by a ledger row in the same transaction.

Spark gives a batch to foreachBatch again if it was killed before it could record that the batch is
done. The ledger row says whether the rows of the batch are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, transaction
from sparkjobs.errors import BadOption
from sparkjobs.ledger import QUERY_ID, take_newest

Write = Callable[[Connection, Any], None]


def into_database(config: Config, write: Write) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that calls ``write(connection, arrow_table)`` per batch.

    The batch is collected on the driver, so aggregate it before. ``write`` must not commit. The
    checkpoint numbers the batches, and its query id is the name in the ledger: a new checkpoint
    writes all batches again, and one that is kept never writes a batch twice. Raises BadOption
    outside foreachBatch, and WriteRefused for a batch of an old checkpoint.
    """

    def each(frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise BadOption("into_database() is for foreachBatch: there is no streaming query here")
        table: pa.Table = frame.toArrow()  # before the transaction: it holds locks
        with connected(config) as connection, transaction(connection):
            if take_newest(connection, f"stream {query}", batch):
                write(connection, table)

    return each

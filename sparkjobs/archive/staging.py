"""Holds the messages of a replay in a table before they are sent: all of them, or what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkjobs.config import Config
from sparkjobs.database import (
    FOR_UPDATE,
    NOW,
    Connection,
    connected,
    delete,
    execute,
    fetch,
    fitting,
    insert,
    transaction,
    vendor_of,
)
from sparkjobs.errors import BadOption
from sparkjobs.placement import Placement
from streams.rules.stored_body import to_stored

STAGED = (
    *("replay", "source", "offset", "target"),
    *("key", "tag", "headers", "body", "body_type", "size"),
)
DELETE_ROWS = 10_000
# The most rows and bytes of one transaction. Group Replication and Galera refuse large ones.
PIECE_ROWS = 5_000
PIECE_BYTES = 16 * 1024 * 1024


def stage(messages: DataFrame, config: Config, mark: str, placement: Placement) -> int:
    """Collect the messages in the staging table, each once, however often a task runs.

    Returns how many there are.
    """
    staging = partial(stage_batches, config=config, mark=mark, placement=placement)
    messages.mapInArrow(staging, "rows long").write.format("noop").mode("overwrite").save()
    with connected(config) as connection:
        count = "SELECT COUNT(*) FROM `ems_monitoring_replay` WHERE `replay` = %s"
        return int(fetch(connection, count, [mark])[0][0])


def stage_batches(
    batches: Iterator[pa.RecordBatch], config: Config, mark: str, placement: Placement
) -> Iterator[pa.RecordBatch]:
    """Write the batches of one task into the staging table; yield the number of rows."""
    size_of = itemgetter(STAGED.index("size"))
    with connected(config) as connection:
        rows = 0
        for batch in batches:
            for chunk in fitting(_staged(batch, mark, placement), size_of):
                insert(connection, "ems_monitoring_replay", STAGED, chunk, "REPLACE")
                rows += len(chunk)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _staged(batch: pa.RecordBatch, mark: str, placement: Placement) -> Iterator[Sequence[Any]]:
    partition_of = placement.partitioner()
    for row in batch.to_pylist():
        target = partition_of(row["key"], row["headers"], row["partition"])
        row["body"], row["body_type"] = to_stored(row["body"], row["body_type"])
        message = (row[name] for name in STAGED[4:])
        yield mark, row["partition"], row["offset"], target, *message


def send(connection: Connection, mark: str, topic: str, target: int) -> int:
    """Send the next messages of a replay, in one transaction, in their old order.

    ``target`` is the id of the topic that gets them. Returns how many it has sent; 0: all are sent.
    """
    vendor = vendor_of(connection)
    with transaction(connection):
        rows = fetch(
            connection,
            "SELECT `id`, `size` FROM `ems_monitoring_replay` WHERE `replay` = %s"  # noqa: S608
            f" ORDER BY `source`, `offset` LIMIT %s {FOR_UPDATE[vendor]}",
            [mark, PIECE_ROWS],
        )
        if not rows:
            return 0
        ids = _piece(rows)
        places = ", ".join(["%s"] * len(ids))
        sent = execute(
            connection,
            "INSERT INTO `ems_msg` (`partition_id`, `due_at`, `key`, `tag`, `headers`, `body`,"  # noqa: S608
            " `body_type`, `size`, `producer`, `created_at`)"
            " SELECT p.`id`, '1970-01-01 00:00:00', s.`key`, s.`tag`, s.`headers`, s.`body`,"
            f" s.`body_type`, s.`size`, {_producer(connection)}, {NOW[vendor]}"
            " FROM `ems_monitoring_replay` s JOIN `ems_partition` p"
            f" ON p.`topic_id` = %s AND p.`number` = s.`target` WHERE s.`id` IN ({places})"
            " ORDER BY s.`source`, s.`offset`",
            [f"replay@{topic}/", target, *ids],
        )
        if sent != len(ids):
            raise BadOption("partitions of the target topic are gone")
        delete(connection, "ems_monitoring_replay", ids)
    return sent


def _piece(rows: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ids of the first rows that have PIECE_BYTES together, of one at least."""
    ids: list[int] = []
    room = PIECE_BYTES
    for id_, size in rows:
        room -= size
        if ids and room < 0:
            break
        ids.append(id_)
    return ids


def _producer(connection: Connection) -> str:
    if vendor_of(connection) == "sqlite":
        return "%s || s.`source` || '@' || s.`offset`"
    return "CONCAT(%s, s.`source`, '@', s.`offset`)"


def forget(connection: Connection, mark: str) -> None:
    """Delete the messages of this replay from the staging table, in batches, by its index."""
    ids = (
        "SELECT `id` FROM `ems_monitoring_replay` WHERE `replay` = %s"
        " ORDER BY `source`, `offset` LIMIT %s"
    )
    while rows := fetch(connection, ids, [mark, DELETE_ROWS]):
        delete(connection, "ems_monitoring_replay", [id_ for (id_,) in rows])

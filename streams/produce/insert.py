"""Inserts messages into the inbox: in chunks, and without those whose dedup key is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import connections

from streams.api import SendResult
from streams.database.sql import send as sql
from streams.produce.dedup import DedupSlot, Holder, take
from streams.produce.outgoing import Placed

# A multi-row INSERT holds at most this many rows and bytes: well below max_allowed_packet.
CHUNK_ROWS = 500
CHUNK_BYTES = 1024 * 1024


def insert_new(
    alias: str, placed: list[Placed], holders: dict[DedupSlot, Holder]
) -> list[SendResult]:
    """Insert the messages of ``placed`` that are not duplicates; return the results in its order.

    ``holders`` are the locked slots: a message is a duplicate if another one holds its slot.
    """
    taken = {
        slot: SendResult(holder.message_id, "", holder.partition, duplicate=True)
        for slot, holder in holders.items()
        if holder.message_id is not None
    }
    new: list[Placed] = []
    claimed: set[DedupSlot | None] = set(taken)
    for one in placed:
        if one.slot not in claimed:
            new.append(one)
        if one.slot is not None:
            claimed.add(one.slot)
    ids = iter([id_ for chunk in in_chunks(new) for id_ in insert_chunk(alias, chunk)])
    results = []
    for one in placed:
        if one.slot is not None and one.slot in taken:
            results.append(replace(taken[one.slot], topic=one.topic))
            continue
        result = one.result(next(ids))
        if one.slot is not None and one.window is not None:
            take(holders[one.slot], result.message_id, one.partition, one.window, alias)
            taken[one.slot] = replace(result, duplicate=True)
        results.append(result)
    return results


def in_chunks(rows: list[Placed]) -> Iterator[list[Placed]]:
    chunk: list[Placed] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == CHUNK_ROWS or size + row.size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row.size
    if chunk:
        yield chunk


def insert_chunk(alias: str, chunk: list[Placed]) -> list[int]:
    """Insert ``chunk`` by one multi-row INSERT; return the new ids in the order of the rows."""
    connection = connections[alias]
    statement = sql.INSERT_MESSAGES + ", ".join(row.values for row in chunk)
    parameters = [value for row in chunk for value in row.parameters]
    returning = connection.features.can_return_rows_from_bulk_insert
    with connection.cursor() as cursor:
        if returning:
            cursor.execute(statement + " RETURNING `id`", parameters)
            return sorted(id_ for (id_,) in cursor.fetchall())
        # Asked before the INSERT, which in autocommit is committed at once: nothing that can fail
        # may come after it. The callers take most errors as "nothing is inserted".
        step = 1 if len(chunk) == 1 else _step(connection, cursor)
        cursor.execute(statement, parameters)
        first = cursor.lastrowid
        return list(range(first, first + step * len(chunk), step))


def _step(connection: Any, cursor: Any) -> int:
    """Return how far the ids of the rows of one INSERT are apart: MySQL gives them in equal steps.

    1, or in a cluster the number of its primaries. A session keeps what it began with, so it is
    asked once.
    """
    known = connection.__dict__.get("_ems_step")
    if known is None or known[0] is not connection.connection:
        cursor.execute("SELECT @@SESSION.auto_increment_increment")
        known = connection._ems_step = (connection.connection, *cursor.fetchone())
    return int(known[1])


def kept_cursor(connection: Any) -> Any:
    """Return a cursor of this connection that is kept open for the next send.

    Django's ``cursor()`` and the closing of what it returns cost more than all the rest of a send
    (docs/about/benchmarks/core.md). Its checks are made here each time. While queries are logged,
    a new cursor is returned, which logs them; execute() itself is Django's.
    """
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    if connection.queries_logged:
        return connection.cursor()
    kept = connection.__dict__.get("_ems_cursor")
    if kept is None or kept[0] is not connection.connection:
        kept = connection._ems_cursor = (connection.connection, connection.cursor())
    return kept[1]

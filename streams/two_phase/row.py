"""Inserts, locks and changes the row of one prepared message, by raw statements.

They are on the path of each prepare() and commit(), where the ORM costs more than the statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connections

from streams.conf import name_prefix
from streams.database.clock import instant
from streams.database.sql import prepared as sql
from streams.database.sql.dialect import later
from streams.database.sql.send import HEX_BYTES
from streams.models import PreparedRow
from streams.models.fields import to_db
from streams.produce.insert import kept_cursor
from streams.rules.stored_body import to_stored
from streams.two_phase.content import PreparedContent

# What the statement of a lock reads, after the clock: in the order of the model, without the key.
_FIELDS = (
    *("id", "state", "topic", "partition", "key", "tag", "headers", "body", "body_type", "size"),
    *("producer", "checker", "checks", "sends", "next_at", "decided_at", "decided_by"),
    *("disputed_at", "message_id"),
)
_READ = frozenset((*_FIELDS, "biz", "biz_key"))


class Changed(Exception):
    """The row is in another state than was read: nothing is written."""

    def __init__(self, row: PreparedRow) -> None:
        self.row = row


def insert(content: PreparedContent, producer: str, using: str) -> int:
    """Insert a prepared message; return its id. Raises IntegrityError if its key is there."""
    connection = connections[using]
    columns, prefix = content.columns, name_prefix()
    body, stored_type = to_stored(columns["body"], columns["body_type"])
    is_small = len(body) <= HEX_BYTES
    parameters = (
        prefix + content.biz,
        content.biz_key,
        prefix + columns["topic"],
        *(columns["partition"], columns["key"], columns["tag"], json.dumps(columns["headers"])),
        *(stored_type, columns["size"], producer, columns["checker"]),
        None if columns["context"] is None else json.dumps(columns["context"]),
        later(connection.vendor, content.first_check),
        *(() if is_small else (body,)),
    )
    # A kept cursor holds its last statement in memory: a large body gets its own cursor.
    cursor = kept_cursor(connection) if is_small else connection.cursor()
    cursor.execute(sql.insert_prepared(connection.vendor, body, columns["digest"]), parameters)
    return int(cursor.lastrowid)


def lock(pk: int, biz: str, biz_key: str, using: str, *, waits: bool = True) -> PreparedRow | None:
    """Lock one row in the open transaction and return it, with ``locked_at``; None if it is gone.

    Without ``waits`` also None if another transaction has locked it.
    """
    connection = connections[using]
    statement = (sql.LOCK if waits else sql.LOCK_OR_SKIP)[connection.vendor]
    cursor = kept_cursor(connection)
    cursor.execute(statement, (pk, name_prefix() + biz, biz_key))
    found = cursor.fetchone()
    if found is None:
        return None
    now, *values = found
    read = dict(zip(_FIELDS, values, strict=True))
    read["topic"] = read["topic"].removeprefix(name_prefix())
    if read["headers"] is not None:
        read["headers"] = json.loads(read["headers"])
    for name in ("next_at", "decided_at", "disputed_at"):
        if read[name] is not None:
            read[name] = instant(read[name])
    pk = read.pop("id")
    row = PreparedRow.from_db(using, _READ, (pk, biz, biz_key, *read.values()))
    row.locked_at = instant(now)
    return row


def change(row: PreparedRow, states: Sequence[str], values: Mapping[str, Any], using: str) -> None:
    """Set columns of the row if it is still in one of ``states``, and ``row`` with it.

    Raises Changed.
    """
    connection = connections[using]
    parameters = [to_db(one) if isinstance(one, datetime) else one for one in values.values()]
    cursor = kept_cursor(connection)
    cursor.execute(sql.change(connection.vendor, [*values], states), (*parameters, row.pk))
    if not cursor.rowcount:
        raise Changed(row)
    for name, value in values.items():
        setattr(row, name, value)

"""Reads the keys of a stretch of the log."""

from __future__ import annotations

from django.db import connections

from streams.database.retrying import retrying
from streams.database.sql import keys as sql
from streams.database.sql.dialect import fetch


def keys_of(partition_id: int, start: int, end: int, using: str) -> dict[int, str | None]:
    """Return the keys of the messages that exist of the offsets ``start`` … ``end`` - 1."""
    statement = sql.KEYS[connections[using].vendor]
    return dict(retrying(fetch, using, using, statement, [partition_id, start, end]))

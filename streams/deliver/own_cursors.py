"""Remembers the cursors of groups, for claims of what was sent just now."""

from __future__ import annotations

import time

from streams.conf import FRESH_SECONDS
from streams.database.sql import claim as sql
from streams.database.sql.dialect import fetch
from streams.deliver.claim import Behind


class OwnCursors:
    """The cursors of groups on one database that claim new messages, at most FRESH_SECONDS old."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._known: dict[int, tuple[float, list[Behind]]] = {}

    def of(self, group_id: int) -> list[Behind]:
        read_at, cursors = self._known.get(group_id, (-FRESH_SECONDS, []))
        if time.monotonic() >= read_at + FRESH_SECONDS:
            cursors = fetch(self._using, sql.OWN_CURSORS, [group_id])
            self._known[group_id] = time.monotonic(), cursors
        return cursors

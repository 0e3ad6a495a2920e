"""Tells how far the clock of the database is ahead of that of this host."""

from __future__ import annotations

import time

from django.db import Error

from streams.database.clock import database_now

# The database is asked again after so many seconds.
KNOWN_SECONDS = 60.0


class DatabaseClock:
    """The clock of each database, asked once in KNOWN_SECONDS; right to half the answer's time."""

    def __init__(self) -> None:
        # By alias: the difference, and until when it holds.
        self._known: dict[str, tuple[float | None, float]] = {}

    def ahead(self, using: str) -> float | None:
        """Return by how many seconds the database's clock is ahead; None if it does not answer."""
        ahead, until = self._known.get(using, (None, 0.0))
        if time.monotonic() >= until:
            ahead = self._ask(using)
            self._known[using] = ahead, time.monotonic() + KNOWN_SECONDS
        return ahead

    def _ask(self, using: str) -> float | None:
        began = time.time()
        try:
            now = database_now(using)
        except Error:
            return None
        return now.timestamp() - (began + time.time()) / 2

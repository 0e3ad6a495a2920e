"""Reads the clock of the database, which all instants of EMS are taken from."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connections

from streams.database.sql.dialect import NOW, fetch


def clock(using: str) -> datetime:
    """Return the time of the database's clock."""
    ((now,),) = fetch(using, f"SELECT {NOW[connections[using].vendor]}")
    if isinstance(now, str):  # SQLite
        now = datetime.fromisoformat(now)
    return now.replace(tzinfo=UTC)  # type: ignore[no-any-return]

"""Reads the clock of the database, which all instants of EMS are taken from."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connections

from streams.database.sql.dialect import NOW, fetch


def database_now(using: str) -> datetime:
    """Return the time of the database's clock, in UTC."""
    ((now,),) = fetch(using, f"SELECT {NOW[connections[using].vendor]}")
    return instant(now)


def instant(value: str | datetime) -> datetime:
    """Return the instant in UTC that a driver has given as a text, or without a time zone.

    SQLite's driver gives texts. So does MySQL's for the dates of messages, which are asked for as
    texts: to make a datetime of each row takes the driver longer.
    """
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC)

"""Converts instants: as databases store them, as Spark takes them, cut to minutes and hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import NOW, Connection, fetch, vendor_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# SQL of an instant as microseconds since EPOCH. Otherwise the driver would build an object for
# each, in the time zone of its session.
MICROSECONDS = {
    MYSQL: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0})",
    # The text has no fraction, or one of three or six digits.
    SQLITE: (
        "(STRFTIME('%%s', SUBSTR({0}, 1, 19)) * 1000000"
        " + CAST(SUBSTR(SUBSTR({0}, 21) || '000000', 1, 6) AS INTEGER))"
    ),
}


def now(connection: Connection) -> datetime:
    """Return the time of the database's clock in UTC."""
    ((value,),) = fetch(connection, f"SELECT {NOW[vendor_of(connection)]}")
    read = instant(value)
    assert read is not None  # noqa: S101 - a clock always answers
    return read


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def hour_of(moment: datetime) -> datetime:
    return moment - timedelta(
        minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond
    )


def stored(value: Any) -> Any:
    """Return an instant as the text that Django reads back, in any time zone of the session."""
    if isinstance(value, datetime):
        return str(value.astimezone(UTC).replace(tzinfo=None))
    return value


def instant(value: Any) -> datetime | None:
    """Return an instant that a database gave as an aware datetime."""
    if value is None:
        return None
    if isinstance(value, str):  # SQLite
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC)  # type: ignore[no-any-return]


def microseconds(instant: datetime) -> int:
    """Return an instant as MICROSECONDS gives it."""
    return (instant - EPOCH) // timedelta(microseconds=1)

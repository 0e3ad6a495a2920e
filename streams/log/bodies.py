"""Reads the messages of a stretch of the log, and bounds how many bytes are read at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connections

from streams.conf import CLAIM_BYTES
from streams.database.retrying import retrying
from streams.database.sql import read as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction


class StoredMessage(NamedTuple):
    """Holds one row of BODIES: a message as it is in the log."""

    offset: int
    message_id: int
    key: str | None
    tag: str
    headers: str | None
    size: int
    producer: str
    created_at: datetime
    sequenced_at: datetime | None
    body_type: str
    body: bytes


def stored_messages(partition_id: int, start: int, end: int, using: str) -> list[StoredMessage]:
    """Return the messages that exist of the offsets ``start`` … ``end`` - 1.

    If some are absent, all are read once more by a locking read: the first read may have gone to
    a replica that is behind.
    """
    place = (partition_id, start, end)
    found = retrying(_read, using, sql.BODIES, place, using)
    return found if len(found) == end - start else retrying(_read_on_primary, using, place, using)


def message_in_dead_letter(letter_id: int, using: str) -> list[StoredMessage]:
    """Return the copy of the message that a dead letter keeps; [] if the letter is gone."""
    return [_stored(row) for row in fetch(using, sql.BODY_OF_DEAD, [letter_id])]


def _read(
    statement: Mapping[str, str], place: tuple[int, int, int], using: str
) -> list[StoredMessage]:
    return [_stored(row) for row in fetch(using, statement[connections[using].vendor], place)]


def _read_on_primary(place: tuple[int, int, int], using: str) -> list[StoredMessage]:
    with own_transaction(using):
        return _read(sql.BODIES_ON_PRIMARY, place, using)


def _stored(row: tuple[Any, ...]) -> StoredMessage:
    offset, id_, key, tag, headers, size, producer, created_at, sequenced_at, kind, body = row
    created_at = _instant(created_at)
    sequenced_at = _instant(sequenced_at) if sequenced_at else None
    return StoredMessage(
        *(offset, id_, key, tag, headers, size, producer, created_at, sequenced_at, kind),
        bytes(body),
    )


def _instant(value: Any) -> datetime:
    if isinstance(value, str):  # SQLite
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC)  # type: ignore[no-any-return]


def bounded_in_bytes(partition_id: int, start: int, end: int, using: str) -> int:
    """Return ``end``, lowered until bodies and headers from ``start`` on have at most CLAIM_BYTES.

    The first message is always included, however large it is.
    """
    if end == start + 1:
        return end
    statement = sql.SIZES[connections[using].vendor]
    total = 0
    for offset, size in fetch(using, statement, [partition_id, start, end]):
        total += size
        if total > CLAIM_BYTES and offset > start:
            return int(offset)
    return end

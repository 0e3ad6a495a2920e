"""Reads the messages of a stretch of the log, and bounds how many bytes are read at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections

from streams.conf import CLAIM_BYTES
from streams.database.clock import instant
from streams.database.retrying import retrying
from streams.database.sql import read as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.rules.stored_body import from_stored, logical_type

# More than a message can have.
MAX_BYTES = 2**32


class StoredMessage(NamedTuple):
    """One row of BODIES as the driver has given it.

    What a handler rarely looks at is converted when it is asked for: see ReceivedMessage.
    """

    offset: int
    message_id: int
    key: str | None
    tag: str
    stored_headers: str | None
    weight: int  # in bytes: body and headers
    size: int
    producer: str
    created: str | datetime
    sequenced: str | datetime | None
    stored_type: str
    # Maybe compressed; None if it is too large: body and headers are left out then.
    stored_body: Any

    @property
    def headers(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.stored_headers) if self.stored_headers else {}
        return found

    @property
    def created_at(self) -> datetime:
        return instant(self.created)

    @property
    def sequenced_at(self) -> datetime | None:
        return instant(self.sequenced) if self.sequenced else None

    @property
    def body_type(self) -> str:
        return logical_type(self.stored_type)

    @property
    def raw_body(self) -> bytes:
        return from_stored(self.stored_body, self.stored_type, self.size)


def stored_messages(
    partition_id: int, start: int, end: int, using: str, *, at_most: int = MAX_BYTES
) -> list[StoredMessage]:
    """Return the messages that exist of the offsets ``start`` … ``end`` - 1.

    Those of more than ``at_most`` bytes come without body and headers. If some are absent, all are
    read once more by a locking read: the first read may have gone to a replica that is behind.
    """
    place = (at_most, at_most, partition_id, start, end)
    found = retrying(_read, using, sql.BODIES, place, using)
    return found if len(found) == end - start else retrying(_read_on_primary, using, place, using)


def message_in_dead_letter(letter_id: int, using: str) -> list[StoredMessage]:
    """Return the copy of the message that a dead letter keeps; [] if the letter is gone."""
    with own_transaction(using):  # another read may go to a replica, which may have an older copy
        return list(map(StoredMessage._make, fetch(using, sql.BODY_OF_DEAD, [letter_id])))


def _read(statement: Mapping[str, str], place: tuple[int, ...], using: str) -> list[StoredMessage]:
    rows = fetch(using, statement[connections[using].vendor], place)
    return list(map(StoredMessage._make, rows))


def _read_on_primary(place: tuple[int, ...], using: str) -> list[StoredMessage]:
    with own_transaction(using):
        return _read(sql.BODIES_ON_PRIMARY, place, using)


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

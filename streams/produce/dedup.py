"""Keeps the dedup window: of all sends with one key to one topic, only the first in it is sent.

Two transactions that insert the same unique key end in a deadlock. So the row of a key is
committed first, by another connection and without a message. Then it is locked in the caller's
transaction, and a second sender waits until the first has committed, or has freed the key by a
rollback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections

from streams import runtime_settings
from streams.database.elsewhere import elsewhere
from streams.database.sql import send as sql
from streams.database.sql.dialect import execute, fetch, later
from streams.database.transactions import can_commit_apart, sees_the_past
from streams.errors import InvalidMessage
from streams.rules.dedup import MAX_WINDOW, hash_of
from streams.rules.names import validated_key

# How often a key is locked before the send gives up. A purge may delete the row between its commit
# and our lock; to happen twice is unlikely.
TRIES = 5


@dataclass(frozen=True, order=True, slots=True)
class DedupSlot:
    """A key of a topic; slots are locked in their order, since any other could deadlock."""

    topic_id: int
    key_hash: bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """The locked row of a slot: free, or held by a message."""

    pk: int
    message_id: int | None
    partition: int


def window_of(key: Any, window: Any, using: str) -> timedelta | None:
    """Return the checked window, or the default one; None without a key.

    Raises InvalidMessage, InvalidName.
    """
    if key is None:
        if window is not None:
            raise InvalidMessage("dedup_window is of no use without a dedup_key.")
        return None
    validated_key(key, "dedup key")
    if window is None:
        return timedelta(seconds=runtime_settings.system("dedupWindowSeconds", using))
    if isinstance(window, int | float) and not isinstance(window, bool):
        try:
            window = timedelta(seconds=window)
        except (OverflowError, ValueError):
            raise InvalidMessage("The dedup_window is too long, or no number.") from None
    if not isinstance(window, timedelta):
        raise InvalidMessage(f"dedup_window must be a timedelta or seconds, not {window!r}.")
    if not timedelta(0) < window <= MAX_WINDOW:
        raise InvalidMessage(f"dedup_window must be longer than nothing, and at most {MAX_WINDOW}.")
    return window


def slot_of(topic_id: int, key: str) -> DedupSlot:
    return DedupSlot(topic_id, hash_of(key))


def prepare(slots: Iterable[DedupSlot], using: str) -> None:
    """Make sure that the rows of ``slots`` exist.

    Called before EMS begins a transaction of its own: this connection can then insert them, and
    commit them at once.
    """
    for one in sorted(slots):
        _make_sure(one, using)


def hold(slots: Iterable[DedupSlot], using: str) -> dict[DedupSlot, Holder]:
    """Lock the prepared slots until the open transaction ends; return the holder of each."""
    return {one: _hold(one, using) for one in sorted(slots)}


def _hold(slot: DedupSlot, using: str) -> Holder:
    statement = sql.lock_dedup(connections[using].vendor, slot.key_hash)
    for _try in range(TRIES):
        for pk, message_id, partition, valid in fetch(using, statement, [slot.topic_id]):
            return Holder(pk, message_id if valid else None, partition)
        # The row was purged while this transaction waited for it. Its place may be locked by this
        # transaction now, so another connection could not insert it: it would wait for this one.
        _insert(slot, using)
    raise RuntimeError("the row of a dedup key is deleted as soon as it is written")


def _make_sure(slot: DedupSlot, using: str) -> None:
    """Make sure that the row of the slot exists, and is committed if others could wait for it."""
    find = sql.find_dedup(slot.key_hash)

    def insert() -> None:
        # Looked up first: an INSERT would wait for a transaction that has locked the row.
        if not fetch(using, find, [slot.topic_id]):
            _insert(slot, using)

    if not can_commit_apart(using):
        insert()
    elif sees_the_past(using) or not fetch(using, find, [slot.topic_id]):
        elsewhere(using, insert)


def _insert(slot: DedupSlot, using: str) -> None:
    statement = sql.insert_dedup(connections[using].vendor, slot.key_hash)
    execute(using, statement, [slot.topic_id])


def take(holder: Holder, message_id: int, partition: int, window: timedelta, using: str) -> None:
    """Let the message hold the slot for ``window`` from now on, if the transaction commits."""
    vendor = connections[using].vendor
    values = [message_id, partition, later(vendor, window), holder.pk]
    execute(using, sql.TAKE_DEDUP[vendor], values)

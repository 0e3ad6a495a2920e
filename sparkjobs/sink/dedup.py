"""Keeps the dedup window for the sink: of all rows with one key to one topic the first is sent.

The rows of the keys and the order of their locks are those of streams/produce/dedup.py, so a write
and a send wait for each other, and neither sends what the other has sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import FOR_UPDATE, NOW, Connection, execute, fetch, vendor_of
from sparkjobs.errors import WriteRefused

# Keys of one statement.
CHUNK = 500
# How often a key is locked before the write gives up: a purge may delete its row in between.
TRIES = 5

# The server's clock plus a parameter.
LATER = {
    MYSQL: "UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)",
}
IGNORE = {MYSQL: "IGNORE", SQLITE: "OR IGNORE"}
# In this order the keys are locked, and no others are.
INDEX = {MYSQL: "FORCE INDEX (ems_dedup_key)", SQLITE: ""}


class Slot(NamedTuple):
    """A key of a topic."""

    topic_id: int
    key_hash: bytes


class LockedSlot(NamedTuple):
    """The locked row of a slot: whether an earlier message holds it."""

    id: int
    taken: bool


def prepare(connection: Connection, slots: Iterable[Slot]) -> None:
    """Write and commit the rows of slots that have none, outside a transaction."""
    vendor = vendor_of(connection)
    for topic_id, hashes in _chunks(slots):
        statement = f"SELECT `key_hash` FROM `ems_dedup` WHERE {_of(hashes)}"  # noqa: S608 - our hashes
        there = {bytes(row[0]) for row in fetch(connection, statement, [topic_id])}
        hour = later(vendor, timedelta(hours=1))
        # Those that are there are left out: an INSERT would wait for who has locked them.
        if new := [one for one in hashes if one not in there]:
            rows = ", ".join(f"({topic_id:d}, {_hex(one)}, 0, {LATER[vendor]})" for one in new)
            execute(
                connection,
                f"INSERT {IGNORE[vendor]} INTO `ems_dedup`"  # noqa: S608
                f" (`topic_id`, `key_hash`, `partition`, `expires_at`) VALUES {rows}",
                [hour] * len(new),
            )


def hold(connection: Connection, slots: Sequence[Slot]) -> dict[Slot, LockedSlot]:
    """Lock the slots until the open transaction ends; raises WriteRefused."""
    holders: dict[Slot, LockedSlot] = {}
    vendor = vendor_of(connection)
    for _try in range(TRIES):
        for topic_id, hashes in _chunks(slot for slot in slots if slot not in holders):
            statement = (
                "SELECT `key_hash`, `id`, `message_id` IS NOT NULL"  # noqa: S608
                f" AND `expires_at` > {NOW[vendor]} FROM `ems_dedup` {INDEX[vendor]}"
                f" WHERE {_of(hashes)} ORDER BY `key_hash` {FOR_UPDATE[vendor]}"
            )
            for key_hash, id_, taken in fetch(connection, statement, [topic_id]):
                holders[Slot(topic_id, bytes(key_hash))] = LockedSlot(id_, bool(taken))
        if len(holders) == len(slots):
            return holders
        prepare(connection, (slot for slot in slots if slot not in holders))
    raise WriteRefused("the rows of dedup keys are deleted as soon as they are written")


def take(
    connection: Connection, taken: Sequence[tuple[LockedSlot, int, int]], window: timedelta
) -> None:
    """Let messages hold their slots for ``window``; each is (holder, message id, partition)."""
    vendor = vendor_of(connection)
    for chunk in _batched(taken, CHUNK):
        ids = ", ".join(f"{holder.id:d}" for holder, _message, _number in chunk)
        messages = " ".join(f"WHEN {holder.id:d} THEN {id_:d}" for holder, id_, _number in chunk)
        numbers = " ".join(f"WHEN {holder.id:d} THEN {number:d}" for holder, _id, number in chunk)
        execute(
            connection,
            f"UPDATE `ems_dedup` SET `message_id` = CASE `id` {messages} END,"  # noqa: S608
            f" `partition` = CASE `id` {numbers} END, `expires_at` = {LATER[vendor]}"
            f" WHERE `id` IN ({ids})",
            [later(vendor, window)],
        )


def later(vendor: str, delay: timedelta) -> str | int:
    """Return ``delay`` as the parameter of LATER."""
    if vendor == SQLITE:
        return f"{delay.total_seconds():+.6f} seconds"
    return delay // timedelta(microseconds=1)


def _of(hashes: Iterable[bytes]) -> str:
    return f"`topic_id` = %s AND `key_hash` IN ({', '.join(map(_hex, hashes))})"


def _hex(value: bytes) -> str:
    return f"x'{value.hex()}'"


def _chunks(slots: Iterable[Slot]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield topics with their hashes, in the order in which sends lock them."""
    for topic_id, group in itertools.groupby(sorted(slots), key=lambda slot: slot.topic_id):
        for chunk in _batched([slot.key_hash for slot in group], CHUNK):
            yield topic_id, list(chunk)


def _batched(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]

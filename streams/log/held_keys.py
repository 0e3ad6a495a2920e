"""Holds keys of groups ordered by key: parks what must wait for one, and lets the next one go.

Of the retries of a key at most one has a due time: the one for which its held key stands. Every
change is made under the lock of the held key, which comes after those of cursors and deliveries,
and before those of retries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db import connections

from streams import runtime_settings
from streams.database.sql import keys as sql
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import own_transaction
from streams.errors import TooManyParked, describe
from streams.log.counting import count_each
from streams.models import Again, ConsumerGroup, DeadMessage, HeldKey, RetryMessage
from streams.models.retry import RetryMessageQuerySet

# The error of a cursor whose next message would have to be parked.
TOO_MANY = describe(TooManyParked())


class GroupPartition(NamedTuple):
    """A group in a partition."""

    group: int
    partition: int


@dataclass(frozen=True)
class KeyedRow:
    """A message that waits in the order of its key; or one that is ``dead``, and holds it."""

    again: Again
    key: str
    key_hash: int
    dead: bool = False


class LockedKey(NamedTuple):
    """The row of a held key, whose lock this transaction has."""

    head: int
    pk: int
    dead: bool


def held(place: GroupPartition, hashes: Collection[int], using: str) -> set[int]:
    """Return which of ``hashes`` are held, without a lock."""
    return set(_read(place, hashes, using, lock=False))


def lock(place: GroupPartition, hashes: Collection[int], using: str) -> dict[int, LockedKey]:
    """Lock those of ``hashes`` that are held."""
    return _read(place, hashes, using, lock=True)


def lock_all(place: GroupPartition, using: str) -> dict[int, LockedKey]:
    """Lock all held keys of the group in the partition, in the order of all who lock several."""
    rows = HeldKey.objects.using(using).filter(group=place.group, partition=place.partition)
    return lock(place, list(rows.values_list("key_hash", flat=True)), using)


def _read(
    place: GroupPartition, hashes: Collection[int], using: str, *, lock: bool
) -> dict[int, LockedKey]:
    if not hashes:
        return {}
    statement = sql.held(connections[using].vendor, len(hashes), lock=lock)
    rows = fetch(using, statement, [*place, *sorted(hashes)])
    return {key: LockedKey(head, pk, bool(dead)) for key, head, pk, dead in rows}


def wait(
    place: GroupPartition, rows: Sequence[KeyedRow], using: str, *, replays: bool = False
) -> None:
    """Write ``rows``, in the order of their offsets: each key is held by the first of them.

    Behind a message that holds a key already, all others are parked. ``replays`` tells whether a
    replay gave them out. The caller has the locks of the cursors of the place, but for those of
    other replays.
    """
    vendor = connections[using].vendor
    hashes = {row.key_hash for row in rows}
    heads = lock(place, hashes, using)
    first = {row.key_hash: row for row in reversed(rows)}
    if free := sorted(hashes - heads.keys()):
        for key in free:
            one = first[key]
            holds = [*place, key, one.key, one.again.offset, one.dead]
            execute(using, sql.HOLD[vendor], holds)
        execute(using, sql.SOME_HELD, place)
    again: list[Again] = []
    for row in rows:
        head = heads.get(row.key_hash)
        leads = row is first[row.key_hash] if head is None else row.again.offset == head.head
        # The head waits for its time already; or for its redrive, if it is dead, as after a reset
        # that has left its key with an edited letter. A replay of a dead one is handled in its
        # place: it holds the key as a retry, and its letter stays.
        if row.dead or (head and leads and not (head.dead and replays)):
            continue
        if head and leads:
            execute(using, sql.DEAD_HEAD, [False, head.pk])
        again.append(replace(row.again, key_hash=row.key_hash, parked=not leads))
    RetryMessage.objects.using(using).schedule(place.group, place.partition, again)


def let_go(place: GroupPartition, key: int, locked: LockedKey, using: str) -> None:
    """Let the next message of a key go, whose head has ended; free the key if there is none.

    The caller has locked the key, and deleted the retry of its head.
    """
    vendor = connections[using].vendor
    following = fetch(using, sql.NEXT_OF_KEY[vendor], [*place, key])
    for pk, offset, due_at in following:
        if due_at is None:
            execute(using, sql.UNPARK[vendor], [pk])
        execute(using, sql.MOVE_HEAD, [offset, locked.pk])
    if not following:
        execute(using, sql.FREE_KEY, [locked.pk])


def end_head(
    place: GroupPartition, key: int, locked: LockedKey, using: str, *, holds: bool
) -> None:
    """Let the next message of a key go, or, if ``holds``, keep the key: its head is dead now.

    The caller has locked the key, and deleted the retry of its head.
    """
    if holds:
        execute(using, sql.DEAD_HEAD, [True, locked.pk])
    else:
        let_go(place, key, locked, using)


def redriven(place: GroupPartition, offsets: Collection[int], using: str) -> dict[int, int]:
    """Lock the keys that dead letters at these offsets hold; return them by offset.

    They are held by the retries that the caller writes for them.
    """
    rows = HeldKey.objects.using(using).filter(group=place.group, partition=place.partition)
    dead = rows.filter(dead=True, head_offset__in=list(offsets))
    # A reset may have freed some of them meanwhile.
    locked = lock(place, list(dead.values_list("key_hash", flat=True)), using)
    found = {one.head: key for key, one in locked.items() if one.dead and one.head in offsets}
    for key in found.values():
        execute(using, sql.DEAD_HEAD, [False, locked[key].pk])
    return found


def repair(place: GroupPartition, hashes: Iterable[int], using: str) -> int:
    """Let go what follows in those keys whose head is gone; return how many.

    The caller has locked them, or begins with this in its transaction.
    """
    repaired = 0
    for key, locked in sorted(lock(place, list(hashes), using).items()):
        head = _rows(place, using).filter(offset=locked.head, key_hash=key)
        is_there = list(head.exclude(due_at=None).select_for_update().values_list("pk"))
        if not is_there and not _is_dead(place, locked, using):
            let_go(place, key, locked, using)
            repaired += 1
    return repaired


def repair_stuck(using: str, at_most: int) -> int:
    """Let go what follows in held keys whose message is gone; return how many there were.

    Nobody should leave one behind: every end of a message lets the next one of its key go.
    """
    repaired = 0
    for _pk, group, partition, key in fetch(using, sql.STUCK_KEYS, [at_most]):
        with own_transaction(using):
            repaired += repair(GroupPartition(group, partition), [key], using)
    return repaired


def _is_dead(place: GroupPartition, locked: LockedKey, using: str) -> bool:
    if not locked.dead:
        return False
    letters = DeadMessage.objects.using(using).waiting().filter(offset=locked.head)
    return letters.filter(group=place.group, partition=place.partition).exists()


def _rows(place: GroupPartition, using: str) -> RetryMessageQuerySet:
    rows = RetryMessage.objects.using(using)
    return rows.filter(group=place.group, partition=place.partition)


def room(group: ConsumerGroup, using: str) -> int:
    """Return how many more messages of the group may be parked, or hold a key."""
    most: int = runtime_settings.system("parkedMessagesMax", using)
    parked = RetryMessage.objects.using(using).filter(group=group.pk, delivery=None, due_at=None)
    heads = HeldKey.objects.using(using).filter(group=group.pk)
    return max(0, most - sum(count_each({"parked": parked, "heads": heads}, most, using).values()))

"""Revokes, for a reset, the open deliveries and retries of offsets that the cursor gives out again.

Each open delivery and each retry that was revoked is recorded as a delivery with the token
TAKEN_BACK, finished at the time of the reset. An undo turns these into retries again, if the
cursor has not given out their offsets in between. A dead letter that has held its key until then is
recorded with the token FREED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connections

from streams.conf import MAX_BATCH
from streams.consume.outcome.any_order import split
from streams.database.sql import settle as sql
from streams.database.sql.dialect import delete_by_id, execute, fetch
from streams.log.held_keys import GroupPartition, LockedKey, lock_all, repair
from streams.models import (
    Again,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Kind,
    Message,
    RetryMessage,
    State,
)
from streams.models.fields import to_db

CHUNK = 1000  # ids in one statement

TAKEN_BACK = "taken back"  # the token of a revoked delivery; no claim has such a token
FENCED = "taken back by a reset"
FREED = "freed"  # the token of the record of a dead letter whose key a reset has freed


class Raced(Exception):
    """A retry was claimed before it could be revoked: the reset must begin again."""


def held_by(cursor: Cursor, using: str, *, lock: bool) -> Delivery | None:
    """Return the open delivery that a cursor of an ordered group waits for, or None."""
    if cursor.open_delivery is None:
        return None
    rows = Delivery.objects.using(using).filter(pk=cursor.open_delivery)
    found = (rows.select_for_update() if lock else rows).first()
    return found if found and found.state == State.START else None


def open_from(cursor: Cursor, target: int, using: str, *, lock: bool) -> list[Delivery]:
    """Return the open deliveries with offsets at or after ``target``, except those of replays."""
    rows = Delivery.objects.using(using)
    place = {"group": cursor.group_id, "partition": cursor.partition_id}
    found = rows.open().filter(**place, last_offset__gte=target).exclude(kind=Kind.REPLAY)
    if not lock:
        return list(found)
    # Found by their state and locked by key: a locking scan would wait for rows of other groups.
    keys = list(found.values_list("pk", flat=True))
    locked = rows.filter(pk__in=keys).order_by("pk").select_for_update()
    # What is settled of a delivery, in any order, stays so. Its holder loses all of the rest.
    return [part for row in locked if row.state == State.START for part in split(row)]


def count_retries(cursor: Cursor, target: int, using: str) -> int:
    """Return how many retries ``revoke_retries`` would revoke."""
    rows = RetryMessage.objects.using(using).filter(group=cursor.group_id)
    rows = rows.filter(partition=cursor.partition_id, offset__gte=target)
    redriven = rows.exclude(dead_letter=None).values_list("offset", "dead_letter")
    return rows.count() - len(_only_in_letters(dict(redriven), cursor, using))


def fence(deliveries: Sequence[Delivery], at: datetime, using: str) -> None:
    """End the deliveries, so that their holders lose the lease and can write nothing more."""
    keys = [delivery.pk for delivery in deliveries]
    Delivery.objects.using(using).filter(pk__in=keys).update(
        state=State.RELEASED, token=TAKEN_BACK, finished_at=at, error=FENCED
    )


def retry_below(deliveries: Sequence[Delivery], target: int, using: str) -> int:
    """Turn unsettled offsets below ``target``, which the cursor will not give out, into retries.

    Returns how many there are.
    """
    count = 0
    for delivery in deliveries:
        below = range(delivery.progress, min(target, delivery.last_offset + 1))
        rows = [Again(offset, delivery.attempt) for offset in below]
        retries = RetryMessage.objects.using(using)
        retries.schedule(delivery.group_id, delivery.partition_id, rows)
        count += len(rows)
    return count


def revoke_retries(
    cursor: Cursor, target: int, fenced: Sequence[Delivery], at: datetime, using: str
) -> int:
    """Delete the retries from ``target`` on, after writing a delivery for each; return how many.

    Raises Raced if a retry is held by a delivery that is not in ``fenced``.
    """
    vendor = connections[using].vendor
    # Only a group by key holds any. What is left of a key below the target goes on.
    held_keys = lock_all(GroupPartition(cursor.group_id, cursor.partition_id), using)
    place = [cursor.group_id, cursor.partition_id, target]
    rows = fetch(using, sql.LOCK_RETRIES_FROM[vendor], place)
    held = {delivery for _pk, _offset, delivery, _letter in rows if delivery}
    if held - {delivery.pk for delivery in fenced}:
        raise Raced
    gone = {key: one for key, one in held_keys.items() if one.head >= target}
    freed = _let_go_of_letters(gone.values(), cursor, at, using)
    if not rows and not freed:
        return 0
    record = [TAKEN_BACK, to_db(at), to_db(at)]
    execute(using, sql.REVOKE_RETRIES[vendor], [*record, *place])
    redriven = {offset: letter for _pk, offset, _delivery, letter in rows if letter}
    kept = _only_in_letters(redriven, cursor, using)
    taken = [pk for pk, offset, *_rest in rows if offset not in kept]
    for start in range(0, len(taken), CHUNK):
        chunk = taken[start : start + CHUNK]
        execute(using, delete_by_id(vendor, "ems_retry_msg", chunk))
    of_letters = RetryMessage.objects.using(using).filter(
        pk__in=[pk for pk, offset, *_rest in rows if offset in kept]
    )
    of_letters.update(delivery=None, again=False)
    repair(GroupPartition(cursor.group_id, cursor.partition_id), gone, using)
    return len(taken)


def revoked(cursor: Cursor, start: int, end: int, now: datetime, using: str) -> Iterator[Again]:
    """Yield what the cursor's last reset has revoked of the offsets ``start`` … ``end`` - 1."""
    records = Delivery.objects.using(using).filter(
        group=cursor.group_id,
        partition=cursor.partition_id,
        first_offset__gt=start - MAX_BATCH,
        first_offset__lt=end,
        token=TAKEN_BACK,
        finished_at=cursor.reset_at,
    )
    columns = ("first_offset", "last_offset", "progress", "attempt", "client_id", "deadline")
    for first, last, progress, attempt, client, deadline, error in records.order_by(
        "first_offset", "pk"
    ).values_list(*columns, "error"):
        if client:  # it was an open delivery
            for offset in range(max(progress, start), min(last + 1, end)):
                # The attempt of a delivery is that of its first message; others have had none.
                yield Again(offset, attempt if offset == first else 1)
        elif start <= first:  # it was a waiting retry, due at what is now the deadline
            yield Again(first, attempt, max(timedelta(0), deadline - now), error)


def held_by_letters(cursor: Cursor, start: int, end: int, using: str) -> set[int]:
    """Return which of the offsets ``start`` … ``end`` - 1 had dead letters that held their keys
    until the cursor's last reset.
    """
    records = Delivery.objects.using(using).filter(
        group=cursor.group_id,
        partition=cursor.partition_id,
        first_offset__gte=start,
        first_offset__lt=end,
        token=FREED,
        finished_at=cursor.reset_at,
    )
    return set(records.values_list("first_offset", flat=True))


def _let_go_of_letters(
    held_keys: Iterable[LockedKey], cursor: Cursor, at: datetime, using: str
) -> int:
    """Let dead letters hold these keys no more, and record it; return how many there were.

    A letter that has the only copy, or an edited one, still holds its key.
    """
    dead = {one.head: one.pk for one in held_keys if one.dead}
    letters = DeadMessage.objects.using(using).waiting()
    letters = letters.filter(group=cursor.group_id, partition=cursor.partition_id)
    letters = letters.filter(offset__in=list(dead)).order_by("edited_at")
    # Of several letters of a message the last one stays here: an edited one, if there is any.
    named = dict(letters.values_list("offset", "pk"))
    let_go = dead.keys() - _only_in_letters(named, cursor, using)
    HeldKey.objects.using(using).filter(pk__in=[dead[at] for at in let_go]).update(dead=False)
    Delivery.objects.using(using).bulk_create(
        Delivery(
            group_id=cursor.group_id,
            partition_id=cursor.partition_id,
            first_offset=offset,
            last_offset=offset,
            progress=offset,
            kind=Kind.RETRY,
            thread="reset",
            token=FREED,
            state=State.RELEASED,
            claimed_at=at,
            deadline=at,
            finished_at=at,
            error="its dead letter holds its key no more",
        )
        for offset in sorted(let_go)
    )
    return len(let_go)


def _only_in_letters(redriven: Mapping[int, int], cursor: Cursor, using: str) -> set[int]:
    """Return the offsets of ``redriven``, {offset: dead letter}, that only the letter has a copy
    of: the message is gone from the log, or was edited.

    Their retries stay, since the log has no message to deliver instead.
    """
    kept = set(redriven)
    offsets = sorted(redriven)
    for start in range(0, len(offsets), CHUNK):
        chunk = offsets[start : start + CHUNK]
        log = Message.objects.using(using).filter(partition=cursor.partition_id)
        letters = [redriven[offset] for offset in chunk]
        edited = DeadMessage.objects.using(using).edited().filter(pk__in=letters)
        in_log = set(log.filter(offset__in=chunk).values_list("offset", flat=True))
        kept -= in_log - set(edited.values_list("offset", flat=True))
    return kept

"""What a reset takes back: what a group holds or waits to see again, and its cursor gives anew.

Nothing is forgotten: each open delivery and each retry that was taken back is a delivery with the
token TAKEN_BACK, finished at the time of the reset. Of these, undo makes retries again, as far as
the cursor has not given their offsets out in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import connections

from streams.conf import MAX_BATCH
from streams.database.sql import settle as sql
from streams.database.sql.dialect import delete_by_id, execute, fetch
from streams.models import Again, Cursor, Delivery, Kind, Message, RetryMessage, State
from streams.models.fields import to_db

CHUNK = 1000  # ids in one statement

TAKEN_BACK = "taken back"  # no claim has such a token
FENCED = "taken back by a reset"


class Raced(Exception):
    """A retry was claimed while it was to be taken back: look at everything again."""


def held_by(cursor: Cursor, using: str, *, lock: bool) -> Delivery | None:
    """The open delivery of a cursor of an ordered group."""
    if cursor.open_delivery is None:
        return None
    rows = Delivery.objects.using(using).filter(pk=cursor.open_delivery)
    found = (rows.select_for_update() if lock else rows).first()
    return found if found and found.state == State.START else None


def open_from(cursor: Cursor, target: int, using: str, *, lock: bool) -> list[Delivery]:
    """The open deliveries that reach the target or lie past it; those of replays go on."""
    rows = Delivery.objects.using(using)
    place = {"group": cursor.group_id, "partition": cursor.partition_id}
    found = rows.open().filter(**place, last_offset__gte=target).exclude(kind=Kind.REPLAY)
    if not lock:
        return list(found)
    # Found by their state and locked by key: a locking scan would wait for those of other groups.
    keys = list(found.values_list("pk", flat=True))
    locked = rows.filter(pk__in=keys).order_by("pk").select_for_update()
    return [row for row in locked if row.state == State.START]


def count_retries(cursor: Cursor, target: int, using: str) -> int:
    """How many ``take_back`` would take."""
    rows = RetryMessage.objects.using(using).filter(group=cursor.group_id)
    rows = rows.filter(partition=cursor.partition_id, offset__gte=target)
    redriven = rows.exclude(dead_letter=None).values_list("offset", flat=True)
    return rows.count() - len(_without_message(list(redriven), cursor, using))


def fence(deliveries: Sequence[Delivery], at: datetime, using: str) -> None:
    """Their holders lose them: what they write from now on changes nothing."""
    keys = [delivery.pk for delivery in deliveries]
    Delivery.objects.using(using).filter(pk__in=keys).update(
        state=State.RELEASED, token=TAKEN_BACK, finished_at=at, error=FENCED
    )


def retry_below(deliveries: Sequence[Delivery], target: int, using: str) -> int:
    """Make retries of what lies below the target, which the cursor does not give out."""
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
    """Delete the retries, after writing a delivery for each; returns how many.

    Raises Raced if one is held by somebody who was not fenced.
    """
    vendor = connections[using].vendor
    place = [cursor.group_id, cursor.partition_id, target]
    rows = fetch(using, sql.LOCK_RETRIES_FROM[vendor], place)
    held = {delivery for _pk, _offset, delivery, _letter in rows if delivery}
    if held - {delivery.pk for delivery in fenced}:
        raise Raced
    if not rows:
        return 0
    record = [TAKEN_BACK, to_db(at), to_db(at)]
    execute(using, sql.REVOKE_RETRIES[vendor], [*record, *place])
    redriven = [offset for _pk, offset, _delivery, letter in rows if letter]
    kept = _without_message(redriven, cursor, using)
    taken = [pk for pk, offset, *_rest in rows if offset not in kept]
    for start in range(0, len(taken), CHUNK):
        chunk = taken[start : start + CHUNK]
        execute(using, delete_by_id(vendor, "ems_retry_msg", chunk))
    of_letters = RetryMessage.objects.using(using).filter(
        pk__in=[pk for pk, offset, *_rest in rows if offset in kept]
    )
    of_letters.update(delivery=None, again=False)
    return len(taken)


def revoked(cursor: Cursor, start: int, end: int, now: datetime, using: str) -> Iterator[Again]:
    """What the last reset of this cursor has taken back of the offsets start … end - 1."""
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
        if client:  # it was in hand
            for offset in range(max(progress, start), min(last + 1, end)):
                # As Delivery.attempt_of().
                yield Again(offset, attempt if offset == first else 1)
        elif start <= first:  # it was waiting, until what is now the deadline
            yield Again(first, attempt, max(timedelta(0), deadline - now), error)


def _without_message(offsets: Sequence[int], cursor: Cursor, using: str) -> set[int]:
    """Of redriven ones, those whose dead letter has the only copy of the body: they stay."""
    gone = set(offsets)
    for start in range(0, len(offsets), CHUNK):
        log = Message.objects.using(using).filter(partition=cursor.partition_id)
        chunk = log.filter(offset__in=offsets[start : start + CHUNK])
        gone.difference_update(chunk.values_list("offset", flat=True))
    return gone

"""Moves cursors on purpose, and covers what they pass by a delivery in state SKIPPED.

Resets, the end of a replay, forced purges and rewound logs all do it by ``move_cursor()``. Unlike
claims, skips may have any length. So they are searched by their state, which few deliveries have.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from streams.models import Cursor, Delivery, Kind, RetryMessage, State, UtcNow
from streams.models.delivery import DeliveryQuerySet

THREAD = "reset"  # of the skips of resets and of cancelled replays


def move_cursor(
    cursor: Cursor, start: int, end: int, at: datetime | UtcNow, using: str, **told: Any
) -> None:
    """Let the next delivery of a cursor begin at ``end``, and cover the offsets start … end - 1.

    ``start`` is the first offset that the group has not seen. The caller has locked the cursor.
    ``told``: more columns of the skip, such as who has skipped.
    """
    if start < end:
        place = cursor.group_id, cursor.partition_id
        write_skipped(place, range(start, end), cursor.kind, at, using, **told)
    cursor.return_to(end)


def write_skipped(
    place: tuple[int, int],
    offsets: range,
    kind: Kind,
    at: datetime | UtcNow,
    using: str,
    **told: Any,
) -> None:
    """Write the delivery that covers ``offsets`` at a ``place``, a group's id and a partition's.

    ``told``: more of its columns, such as who has skipped them.
    """
    group_id, partition_id = place  # an id: with an object Django would ask the project's routers
    Delivery.objects.using(using).create(
        group_id=group_id,
        partition_id=partition_id,
        first_offset=offsets[0],
        last_offset=offsets[-1],
        progress=offsets[0],
        kind=kind,
        state=State.SKIPPED,
        claimed_at=at,
        deadline=at,
        finished_at=at,
        **told,
    )


def give_up_retries(rows: Sequence[RetryMessage], using: str, **told: Any) -> None:
    """Delete retries that wait, each covered by a skip of its attempt. The caller has locked them.

    ``told``: more columns of the skips, such as who has skipped them.
    """
    for row in rows:
        place, offsets = (row.group_id, row.partition_id), range(row.offset, row.offset + 1)
        of_row = {**told, "attempt": row.attempt}
        write_skipped(place, offsets, Kind.RETRY, UtcNow(), using, **of_row)
    RetryMessage.objects.using(using).filter(pk__in=[row.pk for row in rows]).delete()


def skips(group_id: int, partition_id: int, first: int, last: int, using: str) -> DeliveryQuerySet:
    """Return the skips that cover any of the offsets ``first`` … ``last``."""
    return Delivery.objects.using(using).filter(
        state=State.SKIPPED,
        group=group_id,
        partition=partition_id,
        first_offset__lte=last,
        last_offset__gte=first,
    )

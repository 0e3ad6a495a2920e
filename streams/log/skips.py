"""Skips: what a cursor has passed on purpose is covered by a delivery in state SKIPPED.

Of any length, unlike claims, so they are looked for by their state, of which there are few.
"""

from __future__ import annotations

from datetime import datetime

from streams.models import Cursor, Delivery, Kind, State
from streams.models.delivery import DeliveryQuerySet

THREAD = "reset"


def cover_skipped(
    cursor: Cursor, start: int, end: int, kind: Kind, at: datetime, using: str
) -> Delivery | None:
    """Cover the offsets start … end - 1; None if there are none."""
    if start >= end:
        return None
    return Delivery.objects.using(using).create(
        group_id=cursor.group_id,  # ids: with objects the project's routers would be asked
        partition_id=cursor.partition_id,
        first_offset=start,
        last_offset=end - 1,
        progress=start,
        kind=kind,
        thread=THREAD,
        state=State.SKIPPED,
        claimed_at=at,
        deadline=at,
        finished_at=at,
    )


def skips(group_id: int, partition_id: int, first: int, last: int, using: str) -> DeliveryQuerySet:
    """The skips of any of the offsets first … last."""
    return Delivery.objects.using(using).filter(
        state=State.SKIPPED,
        group=group_id,
        partition=partition_id,
        first_offset__lte=last,
        last_offset__gte=first,
    )

"""Covers the offsets that a cursor has passed on purpose by a delivery in state SKIPPED.

Unlike claims, skips may have any length. So they are searched by their state, which few
deliveries have.
"""

from __future__ import annotations

from datetime import datetime

from streams.models import Cursor, Delivery, Kind, State
from streams.models.delivery import DeliveryQuerySet

THREAD = "reset"


def cover_skipped(
    cursor: Cursor, start: int, end: int, kind: Kind, at: datetime, using: str
) -> Delivery | None:
    """Cover the offsets ``start`` … ``end`` - 1 as skipped at ``at``; None if there are none."""
    if start >= end:
        return None
    return Delivery.objects.using(using).create(
        group_id=cursor.group_id,  # an id: with an object Django would ask the project's routers
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
    """Return the skips that cover any of the offsets ``first`` … ``last``."""
    return Delivery.objects.using(using).filter(
        state=State.SKIPPED,
        group=group_id,
        partition=partition_id,
        first_offset__lte=last,
        last_offset__gte=first,
    )

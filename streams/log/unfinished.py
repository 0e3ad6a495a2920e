"""Tells whether groups have yet to finish a message."""

from __future__ import annotations

from django.db.models import Q

from streams.conf import MAX_BATCH
from streams.models import Cursor, Delivery, Message, RetryMessage


def is_unfinished(message: Message, using: str, group: int | None = None) -> bool:
    """Tell whether any group, or ``group``, handles the message or will see it, also in a replay.

    The order of the looks matters: a message goes from its cursor to a delivery, and from there to
    a retry, which stays until the outcome is on record.
    Indexes, with ``group``: ems_cursor_place, ems_log_place (claims are short) and ems_retry_place.
    """
    at = message.offset
    if at is None:
        return True
    place = {"partition": message.partition_id}
    if group is not None:
        place["group"] = group
    ahead = Q(stop_offset=None) | Q(stop_offset__gt=at)
    if Cursor.objects.using(using).filter(ahead, **place, next_offset__lte=at).exists():
        return True
    covering = (
        Delivery.objects.using(using)
        .open()
        .filter(**place, first_offset__range=(at - MAX_BATCH + 1, at), last_offset__gte=at)
    )
    if not all(one.is_settled(at) for one in covering.only("first_offset", "progress", "settled")):
        return True
    return RetryMessage.objects.using(using).filter(**place, offset=at).exists()

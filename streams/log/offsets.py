"""Offsets by time: a binary search in the log."""

from __future__ import annotations

from datetime import datetime

from streams.models import Message, Partition


def offset_at(partition: Partition, time: datetime) -> int:
    """The first offset that was sequenced at this time or later, or the end of the log.

    By binary search: offsets are dense, and sequenced_at never falls as they rise. Each look is
    one entry of ems_msg_log; where messages are gone (a TRUNCATE), the next one that is there.
    The first look is at the beginning: of most logs, the purge finds nothing to do there.
    """
    log = Message.objects.using(partition._state.db).filter(partition=partition.pk)
    low, high = partition.first_offset, partition.next_offset
    middle = low
    while low < high:
        rest = log.filter(offset__gte=middle, offset__lt=high).order_by("offset")
        found = rest.only("offset", "sequenced_at").first()
        if found and found.offset is not None and found.sequenced_at and found.sequenced_at < time:
            low = found.offset + 1
        else:
            high = middle
        middle = (low + high) // 2
    return low

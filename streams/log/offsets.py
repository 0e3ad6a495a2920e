"""Finds offsets by time: a binary search in the log."""

from __future__ import annotations

from datetime import datetime

from streams.models import Message, Partition


def offset_at(partition: Partition, time: datetime) -> int:
    """Return the first offset that was sequenced at ``time`` or later, or the end of the log.

    A binary search works because offsets are dense and sequenced_at never falls as they rise.
    Each step reads one entry of ems_msg_log, or the next existing one where messages are gone
    (after a TRUNCATE). The first step reads the beginning of the log, since the purge, which
    calls this, finds nothing older than ``time`` in most logs.
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

"""Reads what only the page of a topic shows: its size and its hot keys, in bounded statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from monitoring.live.inbox import PartitionState
from monitoring.models import HotKey
from streams.models import Message

# In messages of each partition: their mean size stands for all.
SIZED = 100
HOUR = timedelta(hours=1)
KEYS = 10


@dataclass(frozen=True)
class HotKeyFigures:
    """Holds a key with many messages in one hour."""

    place: int
    key: str
    messages: int
    share: float


def mean_size(using: str, partitions: Sequence[PartitionState]) -> float | None:
    """Return the mean size in bytes of the newest messages; None if there are none.

    At most SIZED messages of each of twenty partitions are read.
    """
    newest = Q()
    for one in partitions[:20]:
        first = max(one.first_offset, one.next_offset - SIZED)
        newest |= Q(partition=one.pk, offset__gte=first, offset__lt=one.next_offset)
    if not newest:
        return None
    sizes = list(Message.objects.using(using).filter(newest).values_list("size", flat=True))
    return sum(sizes) / len(sizes) if sizes else None


def hot_keys(using: str, topic: int, now: datetime) -> tuple[datetime | None, list[HotKeyFigures]]:
    """Return the newest hour of the last day that Spark has ranked, and its hottest keys."""
    rows = HotKey.objects.using(using).filter(topic=topic, hour__gte=now - 24 * HOUR)
    newest = list(rows.order_by("-hour", "place")[:KEYS])
    if not newest:
        return None, []
    hour = newest[0].hour
    return hour, [
        HotKeyFigures(row.place, row.key, row.messages, row.share)
        for row in newest
        if row.hour == hour
    ]

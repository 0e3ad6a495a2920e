"""Reads the hot keys of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.models import HotKey

HOUR = timedelta(hours=1)
KEYS = 10


@dataclass(frozen=True)
class HotKeyFigures:
    """A key with many messages in one hour."""

    place: int
    key: str
    messages: int
    share: float


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

"""Tells which classes of error a group has: by Spark for a time range, or of its newest letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import connections
from django.db.models import Max, Sum

from monitoring.models import ErrorClass
from streams.database.clock import instant
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch

# In dead letters: what is read without Spark.
NEWEST = 1000
SHOWN = 8


def error_classes(using: str, group: int, since: datetime) -> Sequence[tuple[str, int, datetime]]:
    """Return (class, failed attempts, last minute) of the roll-ups, the most frequent first."""
    rows = ErrorClass.objects.using(using).filter(group=group, minute__gte=since)
    sums = rows.values_list("error_class").annotate(n=Sum("failed"), last=Max("minute"))
    return list(sums.order_by("-n")[:SHOWN])


def letter_classes(using: str, group: int) -> Sequence[tuple[str, int, datetime]]:
    """Return (class, letters, last death) of the newest waiting dead letters of a group."""
    statement = sql.NEWEST_ERRORS[connections[using].vendor]
    counts: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for name, at in fetch(using, statement, [group, NEWEST]):
        counts[name] += 1
        last[name] = max(instant(at), last.get(name, instant(at)))
    return [(name, count, last[name]) for name, count in counts.most_common(SHOWN)]

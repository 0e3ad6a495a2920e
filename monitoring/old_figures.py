"""Deletes figures, and runs of the jobs, that are older than figureRetentionDays.

Minutes go after figureMinuteRetentionDays: an hour has been added up with each of its minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import Max, QuerySet

from monitoring.models import (
    BacklogLevel,
    Consumption,
    ConsumptionLevel,
    ErrorClass,
    ErrorLevel,
    Grain,
    HotKey,
    Latency,
    LatencyLevel,
    Run,
    Traffic,
    TrafficLevel,
)
from streams.database.batches import delete_all
from streams.models import UtcNow
from streams.runtime_settings import system

MINUTES = (Traffic, Consumption, Latency, ErrorClass)
LEVELS = (TrafficLevel, ConsumptionLevel, LatencyLevel, ErrorLevel, BacklogLevel)


def old_figures(using: str) -> Iterator[int]:
    """Delete them in small batches; yield how many each has deleted."""
    ages = [
        timedelta(days=days) if (days := system(name, using)) else None
        for name in ("figureMinuteRetentionDays", "figureRetentionDays")
    ]
    there = set(connections[using].introspection.table_names()) if any(ages) else set()
    for age, old in zip(ages, (_old_minutes, _old), strict=True):
        for rows in old(age, using) if age else ():
            if rows.model._meta.db_table in there:
                yield from delete_all(rows, using)


def _old_minutes(age: timedelta, using: str) -> Iterator[QuerySet[Any]]:
    for model in MINUTES:
        rows = model._default_manager.using(using)
        yield rows.filter(minute__lt=UtcNow(-age)).order_by("minute")


def _old(age: timedelta, using: str) -> Iterator[QuerySet[Any]]:
    yield from _old_minutes(age, using)
    for level in LEVELS:
        for grain in Grain:
            # Of whole hours and days: they begin earlier than their minutes.
            whole = age + timedelta(minutes=grain)
            sums = level._default_manager.using(using).filter(grain=grain)
            yield sums.filter(start__lt=UtcNow(-whole)).order_by("start")
    yield HotKey.objects.using(using).filter(hour__lt=UtcNow(-age)).order_by("hour")
    # The next window of a job begins where its last run has ended.
    runs = Run.objects.using(using)
    newest = runs.values("job", "state").annotate(newest=Max("pk")).values("newest")
    old = runs.filter(started_at__lt=UtcNow(-age))
    yield old.exclude(pk__in=newest).order_by("pk")

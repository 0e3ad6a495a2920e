"""Deletes figures, and runs of the jobs, that are older than figureRetentionDays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import Max, QuerySet

from monitoring.models import (
    Backlog,
    Consumption,
    ErrorClass,
    HotKey,
    Latency,
    Run,
    Traffic,
)
from streams.database.batches import delete_all
from streams.models import UtcNow
from streams.runtime_settings import system


def old_figures(using: str) -> Iterator[int]:
    """Delete them in small batches; yield how many each has deleted."""
    days = system("figureRetentionDays", using)
    there = set(connections[using].introspection.table_names()) if days else set()
    for rows in _old(timedelta(days=days), using):
        if rows.model._meta.db_table in there:
            yield from delete_all(rows, using)


def _old(age: timedelta, using: str) -> Iterator[QuerySet[Any]]:
    for model in (Traffic, Consumption, Latency, ErrorClass, Backlog):
        rows = model._default_manager.using(using)
        yield rows.filter(minute__lt=UtcNow(-age)).order_by("minute")
    yield HotKey.objects.using(using).filter(hour__lt=UtcNow(-age)).order_by("hour")
    # The next window of a job begins where its last run has ended.
    runs = Run.objects.using(using)
    newest = runs.values("job", "state").annotate(newest=Max("pk")).values("newest")
    old = runs.filter(started_at__lt=UtcNow(-age))
    yield old.exclude(pk__in=newest).order_by("pk")

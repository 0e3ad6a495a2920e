"""Thins samples to one an hour, and deletes them and the marks in the end: in the nightly purge."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import connections

from monitoring.models import GroupSample, Mark, PartitionSample
from monitoring.sample.grain import HOURLY
from streams.database.batches import delete_all
from streams.models import UtcNow

# By grain: how long they are kept.
KEPT = {(1, 5): timedelta(days=8), (HOURLY, 360): timedelta(days=90)}

# No chart is longer.
MARKS = timedelta(days=90)


def old_samples(using: str) -> Iterator[int]:
    """Delete them in small batches; yield how many each has deleted."""
    there = set(connections[using].introspection.table_names())
    if Mark._meta.db_table in there:
        marks = Mark._base_manager.using(using).filter(at__lt=UtcNow(-MARKS))
        yield from delete_all(marks.order_by("at"), using)
    for model in (PartitionSample, GroupSample):
        if model._meta.db_table not in there:
            continue
        for grains, age in KEPT.items():
            for grain in grains:  # one at a time: the index then gives them in this order
                rows = model._default_manager.using(using).filter(grain=grain)
                old = rows.filter(minute__lt=UtcNow(-age)).order_by("minute")
                yield from delete_all(old, using)

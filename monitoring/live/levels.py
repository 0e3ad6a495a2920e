"""Reads figures of a time range from minutes, hours and days, by one statement.

Whole days come from days, what is left of them from hours, and what is left of these from minutes.
So thirty days are some hundred rows of a partition, and the sums are those of the minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from monitoring.models import Grain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def levels(
    minutes: QuerySet[Any],
    sums: QuerySet[Any],
    since: datetime,
    columns: Callable[[QuerySet[Any]], QuerySet[Any]],
) -> list[tuple[Any, ...]]:
    """Return what ``columns`` selects of the minutes, and of the hours and days, since then.

    ``columns`` groups and selects, of the one and of the other; their rows are not added up here.
    """
    hour, day = (since + (EPOCH - since) % grain for grain in (HOUR, DAY))
    fine = minutes.filter(minute__gte=since, minute__lt=hour)
    coarse = sums.filter(
        Q(grain=Grain.HOUR, start__gte=hour, start__lt=day) | Q(grain=Grain.DAY, start__gte=day)
    )
    return list(columns(fine.order_by()).union(columns(coarse.order_by()), all=True))

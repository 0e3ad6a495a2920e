"""Reads figures of times from minutes, hours and days, by one statement.

Whole days come from days, what is left of them from hours, and what is left of these from minutes.
So thirty days are some hundred rows of a partition, and the sums are those of the minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Aggregate, Q, QuerySet, Value

from monitoring.models import Grain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class TimeSpan(NamedTuple):
    """A time from a minute to before another one; without an end, up to the newest figure."""

    since: datetime
    until: datetime | None = None


def levels(
    minutes: QuerySet[Any],
    sums: QuerySet[Any],
    spans: Sequence[TimeSpan],
    key: str,
    *figures: Aggregate,
) -> list[tuple[Any, ...]]:
    """Return (key, number of the span, *figures) of the minutes, and of the hours and days.

    A key may have several rows of a span: they are not added up here.
    """
    parts = []
    for number, span in enumerate(spans):
        fine, coarse = minutes.filter(rest(span)), sums.filter(whole(span))
        parts += [figures_of(rows, number, key, *figures) for rows in (fine, coarse)]
    return list(parts[0].union(*parts[1:], all=True))


def figures_of(rows: QuerySet[Any], number: int, key: str, *figures: Aggregate) -> QuerySet[Any]:
    """Return rows (key, number, *figures), which fit into one statement with others."""
    named = {f"figure_{n}": figure for n, figure in enumerate(figures)}
    found: Any = rows.order_by().values_list(key)
    return found.annotate(span=Value(number), **named)  # type: ignore[no-any-return]


def whole(span: TimeSpan) -> Q:
    """Return the condition for the days in a time, and for the hours beside them."""
    hour, day = (span.since + (EPOCH - span.since) % grain for grain in (HOUR, DAY))
    of_hours, of_days = Q(grain=Grain.HOUR), Q(grain=Grain.DAY)
    if span.until is None:
        return of_hours & Q(start__gte=hour, start__lt=day) | of_days & Q(start__gte=day)
    last_hour, last_day = (span.until - (span.until - EPOCH) % grain for grain in (HOUR, DAY))
    if day >= last_day:
        return of_hours & Q(start__gte=hour, start__lt=last_hour)
    return (
        of_hours & Q(start__gte=hour, start__lt=day)
        | of_days & Q(start__gte=day, start__lt=last_day)
        | of_hours & Q(start__gte=last_day, start__lt=last_hour)
    )


def rest(span: TimeSpan) -> Q:
    """Return the condition for the minutes of a time that are in no whole hour of it."""
    hour = span.since + (EPOCH - span.since) % HOUR
    if span.until is None:
        return Q(minute__gte=span.since, minute__lt=hour)
    last_hour = span.until - (span.until - EPOCH) % HOUR
    if hour >= last_hour:
        return Q(minute__gte=span.since, minute__lt=span.until)
    return Q(minute__gte=span.since, minute__lt=hour) | Q(
        minute__gte=last_hour, minute__lt=span.until
    )

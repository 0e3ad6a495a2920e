"""Reads roll-ups of Spark period by period, as the samples are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import CharField, F, Max, Q, QuerySet, Sum
from django.db.models.functions import Substr

from monitoring.live.pipeline import RECENT, Percentiles
from monitoring.models import ErrorClass, Latency, Leg
from monitoring.sample.grain import HOURLY
from monitoring.sample.periods import Periods
from monitoring.sample.series import Values

HOUR = "%Y-%m-%d %H"
HOUR_LENGTH = len("2026-11-22 14")


@dataclass
class Latencies:
    """Holds p50, p95 and p99 of a group, in seconds from the send until it was done.

    Of each period those of its worst minute; None where the group has finished nothing.
    """

    lines: list[Values]
    now: list[float | None]  # of the worst one of the last minutes, as the lists of groups show

    @property
    def recent(self) -> Percentiles | None:
        known = [timedelta(seconds=value) for value in self.now if value is not None]
        return Percentiles(*known) if known else None


def latencies(using: str, periods: Periods, groups: Sequence[int]) -> dict[int, Latencies]:
    """Return how long the messages of each of the groups took that has finished any."""
    rows = Latency.objects.using(using).filter(leg=Leg.TOTAL, group__in=list(groups))
    columns = ("p50", "p95", "p99")
    worst = {f"worst_{name}": Max(name) for name in columns}
    recent = Q(minute__gte=periods.now - RECENT)
    worst |= {f"recent_{name}": Max(name, filter=recent) for name in columns}
    found: dict[int, Latencies] = {}
    for place, (group, *values) in _by_period(rows, periods, "group", **worst):
        empty = Latencies([[None] * len(periods.starts) for _ in columns], [None] * len(columns))
        of_group = found.setdefault(group, empty)
        for line, value in zip(of_group.lines, values, strict=False):
            line[place] = _higher(line[place], value)
        newer = values[len(columns) :]
        of_group.now = [_higher(*pair) for pair in zip(of_group.now, newer, strict=True)]
    return found


def _higher(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def failures(using: str, periods: Periods, group: int) -> Iterator[tuple[int, str, int, datetime]]:
    """Yield (number of the period, class of error, failed attempts, last minute) of a group."""
    rows = ErrorClass.objects.using(using).filter(group=group)
    sums = {"n": Sum("failed"), "last": Max("minute")}
    for place, (name, count, last) in _by_period(rows, periods, "error_class", **sums):
        yield place, name, int(count), last


def _by_period(
    rows: QuerySet[Any], periods: Periods, name: str, **aggregates: Any
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield (number of the period, [name, *aggregates]) of the rows of these periods.

    In a chart of days the server adds up the rows of an hour, by the text of their minute: the
    functions of Django that cut instants convert them to the zone of the connection.
    """
    by_hour = periods.minutes >= HOURLY
    at: Any = Substr("minute", 1, HOUR_LENGTH, output_field=CharField()) if by_hour else F("minute")
    chosen = rows.filter(minute__gte=periods.first).order_by()
    for text, *values in chosen.annotate(at=at).values_list("at", name).annotate(**aggregates):
        moment = datetime.strptime(text, HOUR).replace(tzinfo=UTC) if by_hour else text
        place = periods.place(moment)
        if place is not None:
            yield place, values

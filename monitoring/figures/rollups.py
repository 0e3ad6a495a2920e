"""Reads roll-ups of Spark period by period, as the samples are read.

Charts with periods of minutes are read from the minutes. Those with longer periods are read from
hours and days, which are few rows and stay when the minutes are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, FloatField, Max, QuerySet, Sum, TextField, Value
from django.utils.translation import gettext_lazy as _

from monitoring.live.histogram import percentiles
from monitoring.live.pipeline import RECENT, Percentiles
from monitoring.models import (
    BacklogLevel,
    ErrorClass,
    ErrorLevel,
    Grain,
    Latency,
    LatencyLevel,
    Leg,
)
from monitoring.sample.grain import HOURLY, floor
from monitoring.sample.periods import Periods
from monitoring.sample.series import GroupSeries, Values

COLUMNS, SHARES = ("p50", "p95", "p99"), (0.5, 0.95, 0.99)
NOTES = {
    0: _("by Spark; of each period its worst minute"),
    Grain.HOUR: _("by Spark; of each hour, to within 5 %"),
    Grain.DAY: _("by Spark; of each day, to within 5 %"),
}
HIGHEST: dict[int, Any] = {
    Grain.HOUR: _("by Spark; of each hour the highest"),
    Grain.DAY: _("by Spark; of each day the highest"),
}


@dataclass
class Latencies:
    """The p50, p95 and p99 of a group, in seconds from the send until it was done.

    They are exact, of the worst minute of each period; in a chart of days, of all messages of the
    hour or the day, to within 5 %. None where the group has finished nothing.
    """

    lines: list[Values]
    now: list[float | None]  # of the worst one of the last minutes, as the lists of groups show

    @classmethod
    def empty(cls, size: int) -> Latencies:
        return cls([[None] * size for _name in COLUMNS], [None] * len(COLUMNS))

    @property
    def recent(self) -> Percentiles | None:
        known = [timedelta(seconds=value) for value in self.now if value is not None]
        return Percentiles(*known) if known else None


def latencies(using: str, periods: Periods, groups: Sequence[int]) -> dict[int, Latencies]:
    """Return how long the messages of each of the groups took that has finished any."""
    grain = _grain(periods)
    if grain:
        return _latencies_of_sums(using, periods, groups, grain)
    # One row for each group and minute: to group them would make a temporary table.
    rows = Latency.objects.using(using).filter(
        leg=Leg.TOTAL, group__in=list(groups), minute__gte=periods.first
    )
    found: dict[int, Latencies] = {}
    for group, minute, *values in rows.order_by().values_list("group", "minute", *COLUMNS):
        if (place := periods.place(minute)) is None:
            continue
        of_group = found.setdefault(group, Latencies.empty(len(periods.starts)))
        for line, value in zip(of_group.lines, values, strict=True):
            line[place] = _higher(line[place], value)
        if minute >= periods.now - RECENT:
            _note_recent(of_group, values)
    return found


@dataclass(frozen=True)
class Backlog:
    """How far a group was behind, period by period, and what else waited.

    In a chart of days, these are the highest figures of each hour or day that Spark has added up,
    with the lowest number of messages behind; where it has not, the first sample of the period.
    """

    note: Any  # of what the figures are, if Spark has added them up
    behind: Values
    least: Values
    age: Values
    waiting: Values
    dead: Values


def backlogs(
    using: str, periods: Periods, sampled: Mapping[int, GroupSeries | None]
) -> dict[int, Backlog]:
    """Return the backlog of each group, by its samples or what Spark has added up of them.

    At most one statement.
    """
    grain = _grain(periods)
    found: dict[int, dict[datetime, list[Any]]] = {group: {} for group in sampled}
    if grain and sampled:
        levels = BacklogLevel.objects.using(using).filter(
            grain=grain, start__in=_starts(periods, grain), group__in=list(sampled)
        )
        columns = "behind", "least", "age_seconds", "waiting", "dead"
        for group, start, *values in levels.values_list("group", "start", *columns):
            found[group][start] = values
    return {
        group: _backlog(periods, series or GroupSeries.empty(len(periods.starts)), found[group])
        for group, series in sampled.items()
    }


def _backlog(
    periods: Periods, samples: GroupSeries, levels: Mapping[datetime, Sequence[Any]]
) -> Backlog:
    grain, unknown = _grain(periods), [None] * len(periods.starts)
    of_samples = samples.behind, unknown, samples.age, samples.waiting, samples.dead
    lines: list[Values] = [list(values) for values in of_samples]
    for place, start in enumerate(periods.starts):
        for line, value in zip(lines, levels.get(floor(start, grain or 1), ()), strict=False):
            line[place] = value
    return Backlog(HIGHEST[grain] if levels else "", *lines)


def note(periods: Periods) -> Any:
    """Return of what the latencies of such a chart are."""
    return NOTES[_grain(periods)]


def _grain(periods: Periods) -> int:
    """Return which sums a chart is read from; 0: from minutes."""
    if periods.minutes < HOURLY:
        return 0
    return Grain.HOUR if periods.minutes == HOURLY else Grain.DAY


def _latencies_of_sums(
    using: str, periods: Periods, groups: Sequence[int], grain: int
) -> dict[int, Latencies]:
    """Return the latencies from the histograms of hours or days, by one statement."""
    of_groups = {"leg": Leg.TOTAL, "group__in": list(groups)}
    sums = LatencyLevel.objects.using(using).filter(
        grain=grain, start__in=_starts(periods, grain), **of_groups
    )
    recent = Latency.objects.using(using).filter(minute__gte=periods.now - RECENT, **of_groups)
    unknown = {name: Value(None, FloatField()) for name in COLUMNS}
    # All columns are annotations, so that both queries have them in this order.
    rows = _annotated(sums, of=F("group"), at=F("start"), text=F("histogram"), **unknown).union(
        _annotated(
            recent,
            of=F("group"),
            at=F("minute"),
            text=Value(None, TextField()),
            **{name: F(name) for name in COLUMNS},
        ),
        all=True,
    )
    found: dict[int, Latencies] = {}
    by_start: dict[tuple[int, datetime], list[float | None]] = {}
    for group, at, text, *values in rows:
        of_group = found.setdefault(group, Latencies.empty(len(periods.starts)))
        if text is None:
            _note_recent(of_group, values)
        else:
            by_start[group, at] = percentiles([text], SHARES)
    for place, start in enumerate(periods.starts):
        for group, of_group in found.items():
            values = by_start.get((group, floor(start, grain)), ())
            for line, value in zip(of_group.lines, values, strict=False):
                line[place] = value
    return found


def _annotated(rows: QuerySet[Any], **columns: Any) -> QuerySet[Any]:
    renamed = {f"a_{name}": value for name, value in columns.items()}
    found: QuerySet[Any] = rows.order_by().annotate(**renamed).values_list(*renamed)
    return found


def _starts(periods: Periods, grain: int) -> list[datetime]:
    """Return when the hours or days of a chart begin: each one is looked up in the unique key."""
    return sorted({floor(start, grain) for start in periods.starts})


def _note_recent(found: Latencies, values: Sequence[float | None]) -> None:
    found.now = [_higher(*pair) for pair in zip(found.now, values, strict=True)]


def _higher(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def failures(using: str, periods: Periods, group: int) -> Iterator[tuple[int, str, int, datetime]]:
    """Yield (number of the period, class of error, failed attempts, when last) of a group.

    When last is the minute, in a chart of days the hour; of the hour that goes on, the minute.
    """
    rows = ErrorClass.objects.using(using).filter(group=group)
    if not _grain(periods):
        sums = {"n": Sum("failed"), "last": Max("minute")}
        for place, (name, count, last) in _by_minute(rows, periods, "error_class", **sums):
            yield place, name, int(count), last
        return
    current = floor(periods.now, HOURLY)
    hours = ErrorLevel.objects.using(using).filter(
        grain=Grain.HOUR, start__in=_hours(periods.first, current), group=group
    )
    columns = {"name": F("error_class"), "count": F("failed")}
    found = _annotated(hours, at=F("start"), **columns).union(
        _annotated(rows.filter(minute__gte=current), at=F("minute"), **columns), all=True
    )
    for at, name, count in found:
        if (number := periods.place(at)) is not None:
            yield number, name, count, at


def _hours(first: datetime, end: datetime) -> list[datetime]:
    return [first + timedelta(hours=n) for n in range((end - first) // timedelta(hours=1))]


def _by_minute(
    rows: QuerySet[Any], periods: Periods, name: str, **aggregates: Any
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield (number of the period, [name, *aggregates]) of the minutes of these periods."""
    chosen = rows.filter(minute__gte=periods.first).order_by()
    for moment, *values in chosen.values_list("minute", name).annotate(**aggregates):
        place = periods.place(moment)
        if place is not None:
            yield place, values

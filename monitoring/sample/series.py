"""Reads the samples of a range as series: one value for each period, None where none was taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min, Q

from monitoring.models import GroupSample, PartitionSample
from monitoring.sample.grain import GRAINS, HOURLY
from monitoring.sample.periods import Periods, Reading, rates

Values = list[float | None]

# The samples of the last minutes are read of every range: rates of now need them.
RECENT = timedelta(minutes=12)


@dataclass
class LogSeries:
    """The series of one partition; ``recent``: all readings of the last minutes."""

    ends: list[Reading | None]
    inbox: Values
    recent: list[Reading] = field(default_factory=list)

    @property
    def published(self) -> Values:
        """Return the messages a second that came into the log."""
        return rates(self.ends)


@dataclass
class GroupSeries:
    """The series of one group; ``recent``: all readings of ``done`` of the last minutes."""

    done: list[Reading | None]
    resets: list[datetime | None]
    behind: Values
    age: Values
    dead: Values
    waiting: Values
    recent: list[tuple[datetime | None, Reading]] = field(default_factory=list)

    @classmethod
    def empty(cls, size: int) -> GroupSeries:
        columns: Any = ([None] * size for _ in range(6))
        return cls(*columns)

    @property
    def consumed(self) -> Values:
        """Return the messages a second that the group has finished; unknown across a reset."""
        found = rates(self.done)
        for number in range(1, len(found)):
            if self.resets[number] != self.resets[number - 1]:
                found[number] = None
        return found

    def recent_since(self, reset_at: datetime | None) -> list[Reading]:
        """Return the recent readings since the newest reset."""
        return [reading for reset, reading in self.recent if reset == reset_at]


def log_series(
    using: str, periods: Periods, partitions: Iterable[int] | None = None
) -> dict[int, LogSeries]:
    """Return the series of each partition that has samples; of all, or of ``partitions``."""
    rows = PartitionSample.objects.using(using)
    rows = rows if partitions is None else rows.filter(partition__in=list(partitions))
    found: dict[int, LogSeries] = {}
    size = len(periods.starts)
    for place, at, partition, end, inbox in _read(rows, periods, "partition next_offset inbox"):
        series = found.setdefault(partition, LogSeries([None] * size, [None] * size))
        if periods.is_recent(at, RECENT):
            series.recent.append((at, end))
        if place is not None:
            series.ends[place] = at, end
            series.inbox[place] = inbox
    return found


def group_series(
    using: str, periods: Periods, groups: Iterable[int] | None = None
) -> dict[int, GroupSeries]:
    """Return the series of each group that has samples; of all, or of ``groups``."""
    rows = GroupSample.objects.using(using)
    rows = rows if groups is None else rows.filter(group__in=list(groups))
    found: dict[int, GroupSeries] = {}
    columns = "group done reset_at behind age_seconds dead waiting"
    for place, at, group, done, reset, *values in _read(rows, periods, columns):
        series = found.get(group)
        if series is None:
            series = found[group] = GroupSeries.empty(len(periods.starts))
        reading = None if done is None else (at, done)
        if reading and periods.is_recent(at, RECENT):
            series.recent.append((reset, reading))
        if place is not None:
            series.done[place] = reading
            series.resets[place] = reset
            lines = (series.behind, series.age, series.dead, series.waiting)
            for line, value in zip(lines, values, strict=True):
                line[place] = value
    return found


def starts(using: str, periods: Periods) -> dict[int, int]:
    """Return the next offset of each partition at its first sample of these periods."""
    rows = PartitionSample.objects.using(using)
    # Of days, the samples of hours are enough: they are few.
    grains = [grain for grain in periods.grains if grain >= HOURLY or len(periods.starts) <= 100]
    chosen = rows.filter(grain__in=grains, minute__gte=periods.first)
    return dict(chosen.values_list("partition").annotate(Min("next_offset")))


def _read(rows: Any, periods: Periods, columns: str) -> Iterator[Sequence[Any]]:
    """Yield (number of the period, taken at, *columns): of each period the first sample.

    The number is None for other samples of the last minutes.
    """
    finer = [grain for grain in GRAINS if grain not in periods.grains]
    # Ranges of the index on (grain, minute).
    chosen = Q(grain__in=periods.grains, minute__gte=periods.first)
    if finer:
        chosen |= Q(grain__in=finer, minute__gte=periods.now - RECENT)
    grains = set(periods.grains)
    # Without ``minute``, since to read an instant of each row takes a good part of the time.
    names = ("grain", "taken_at", *columns.split())
    for grain, at, *values in rows.filter(chosen).values_list(*names):
        yield periods.place(at) if grain in grains else None, at, *values

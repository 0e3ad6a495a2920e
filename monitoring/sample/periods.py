"""Defines the periods of a chart: as many as a chart can show, whatever its range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from monitoring.sample.grain import GRAINS, floor

# In minutes: a chart up to this long has periods of so many minutes.
PERIODS = {60: 1, 6 * 60: 5, 24 * 60: 5, 7 * 24 * 60: 60, 30 * 24 * 60: 360}


@dataclass(frozen=True)
class Periods:
    """The beginnings of the periods of a chart, and the grains whose samples it reads."""

    starts: Sequence[datetime]
    minutes: int
    now: datetime

    @classmethod
    def until(cls, now: datetime, length: timedelta) -> Periods:
        """Return the periods of so long before ``now``, with the one that has just begun."""
        whole = length // timedelta(minutes=1)
        minutes = next((p for most, p in PERIODS.items() if whole <= most), GRAINS[0])
        last = floor(now, minutes)
        count = whole // minutes + 1
        starts = [last - timedelta(minutes=minutes * n) for n in reversed(range(count))]
        return cls(starts, minutes, now)

    @property
    def grains(self) -> list[int]:
        """Return the grains of which each period has one sample, if it was sampled at all."""
        return [grain for grain in GRAINS if grain >= self.minutes]

    @property
    def first(self) -> datetime:
        return self.starts[0]

    def is_recent(self, moment: datetime, length: timedelta) -> bool:
        return moment >= self.now - length

    def place(self, moment: datetime) -> int | None:
        """Return the number of the period that contains ``moment``."""
        number = (moment - self.first) // timedelta(minutes=self.minutes)
        return number if 0 <= number < len(self.starts) else None


Reading = tuple[datetime, float]  # when a value was read, and the value


def rates(readings: Sequence[Reading | None]) -> list[float | None]:
    """Return by how much a count has grown since the period before, in a second.

    Where one of the two was not sampled, or the count has fallen (a row was deleted, a group was
    reset), the rate is unknown.
    """
    found: list[float | None] = [None]
    found += [rate(before, now) for before, now in pairwise(readings)]
    return found[: len(readings)]


def rate(before: Reading | None, now: Reading | None) -> float | None:
    if before is None or now is None or now[1] < before[1] or now[0] <= before[0]:
        return None
    return (now[1] - before[1]) / (now[0] - before[0]).total_seconds()


def total(lines: Iterable[Sequence[float | None]]) -> list[float | None]:
    """Return the sums of lines, period by period: unknown only where no line is known."""
    return [
        sum(known) if (known := [value for value in column if value is not None]) else None
        for column in zip(*lines, strict=True)
    ]

"""Defines a chart: lines over one time axis, with gaps where nothing is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# The unit of values in seconds, which are shown as people read durations: "4 min 49 s".
DURATION = "duration"


@dataclass(frozen=True)
class Line:
    """One line: a value for each time of its chart, None where it is unknown."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """Lines over the same times. ``unit`` is DURATION, or stands after each value: "/s".

    The values of a stacked chart are parts of a whole: each line is drawn on those before it.
    """

    name: str  # unique on its page
    title: Any
    unit: str
    times: Sequence[datetime]
    lines: Sequence[Line]
    note: Any = field(default="")
    empty: Any = field(default="")  # what it says while no value is known
    is_stacked: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no line has a value."""
        return all(value is None for line in self.lines for value in line.values)

    @property
    def highest(self) -> float:
        """Return the highest value that is drawn, 0 if there is none."""
        return max((v for values in self.drawn for v in values if v is not None), default=0)

    @property
    def drawn(self) -> list[Sequence[float | None]]:
        """Return where each line is drawn: in a stacked chart, on the lines before it."""
        lines = [line.values for line in self.lines]
        if not self.is_stacked:
            return lines
        columns = [list(_stacked(column)) for column in zip(*lines, strict=True)]
        return [list(layer) for layer in zip(*columns, strict=True)] or lines

    @property
    def rows(self) -> list[tuple[datetime, list[float | None]]]:
        """Return the values of each time, the newest first: what the table of figures shows."""
        columns = [line.values for line in self.lines]
        rows = [(at, [values[n] for values in columns]) for n, at in enumerate(self.times)]
        return rows[::-1]

    @property
    def ticks(self) -> list[datetime]:
        """Return five times, evenly spread from the first one to the last one."""
        if len(self.times) < 2:
            return list(self.times)
        first, last = self.times[0], self.times[-1]
        return [first + (last - first) * n / 4 for n in range(5)]


def _stacked(column: Sequence[float | None]) -> Iterator[float | None]:
    """Yield the sums up to each value; nothing is known of a time of which no value is."""
    if all(value is None for value in column):
        yield from column
        return
    height = 0.0
    for value in column:
        height += value or 0
        yield height

"""Tells which classes of error a group has: by Spark for a time range, or of its newest letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connections

from monitoring.figures.rollups import failures
from monitoring.sample.periods import Periods
from monitoring.sample.series import Values
from streams.database.clock import instant
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch

# In dead letters: what is read without Spark.
NEWEST = 1000
# In classes: those of the table, and those that have a line of their own in the chart.
SHOWN, LINES = 8, 5


@dataclass(frozen=True)
class Errors:
    """Holds how often a group failed with each class of error, the most frequent first.

    ``lines`` are failures a minute, period by period; the name "" stands for all other classes.
    """

    classes: Sequence[tuple[str, int, datetime]]
    lines: Sequence[tuple[str, Values]]


Failure = tuple[int | None, str, int, datetime]  # number of the period, class, count, last


def errors_by_spark(using: str, group: int, periods: Periods, known: Iterable[int]) -> Errors:
    """Return the failed attempts of the time range.

    ``known`` are periods in which Spark has counted something else of the group. Before the first
    figure and after the last one nothing is known; between them, a minute without a row had no
    failure.
    """
    found = list(failures(using, periods, group))
    places = [*known, *(place for place, *_failure in found)]
    span = (min(places), max(places)) if places else None
    return _errors(found, periods, span)


def errors_of_letters(using: str, group: int, periods: Periods) -> Errors:
    """Return the classes of the newest waiting dead letters of a group, by when they died."""
    statement = sql.NEWEST_ERRORS[connections[using].vendor]
    newest = [(name, instant(at)) for name, at in fetch(using, statement, [group, NEWEST])]
    found = [(periods.place(at), name, 1, at) for name, at in newest]
    # Of the time before the oldest one that was read, others are not known.
    oldest = min(at for _name, at in newest) if len(newest) == NEWEST else periods.first
    first = 0 if oldest <= periods.first else (periods.place(oldest) or 0) + 1
    return _errors(found, periods, (first, len(periods.starts) - 1))


def _errors(found: Sequence[Failure], periods: Periods, span: tuple[int, int] | None) -> Errors:
    counts: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for _place, name, count, at in found:
        counts[name] += count
        last[name] = max(at, last.get(name, at))
    classes = [(name, count, last[name]) for name, count in counts.most_common(SHOWN)]
    drawn = [name for name, _count in counts.most_common(LINES)]
    lines = {name: _known(len(periods.starts), span) for name in drawn}
    if len(counts) > LINES:
        lines[""] = _known(len(periods.starts), span)
    for place, name, count, _at in found:
        line = lines[name if name in lines else ""]
        if place is not None and (before := line[place]) is not None:
            line[place] = before + count / periods.minutes
    return Errors(classes, list(lines.items()))


def _known(size: int, span: tuple[int, int] | None) -> Values:
    """Return a line of zeros in the span, and of nothing elsewhere."""
    if span is None:
        return [None] * size
    first, last = span
    return [0.0 if first <= place <= last else None for place in range(size)]

"""Holds what benchmarks find: rows of named values, and why a row fails ``make bench``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Value = float | str | None
T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """Says how much is done: see ``python -m tests.lab.benchmarks --help``."""

    quick: bool = False
    messages: int | None = None  # of the large log of growth
    hold: float = 5.0  # seconds that a snapshot and a transaction are held
    seconds: float | None = None  # of the long run of sustained
    snapshot: bool = False  # whether sustained has a second one, beside an open snapshot


@dataclass(frozen=True)
class Row:
    """Holds one line of a table: ``values`` by the name of their column."""

    name: str
    values: dict[str, Value]
    failure: str = ""  # why it fails make bench; a speed never does, since a busy machine is slow


def interleaved(
    name: str,
    ours: Callable[[], float],
    raw: Callable[[], float],
    *,
    rounds: int,
    target: float,
) -> Row:
    """Run both in turn and compare the medians: what disturbs the machine disturbs both.

    ``ours`` and ``raw`` return how many a second. ``target`` is what ours / raw is to reach. Who
    begins changes from round to round. The first round of each only warms up.
    """
    ours()
    raw()
    speeds = alternately([ours, raw], rounds)
    middle = [statistics.median(measured) for measured in speeds]
    ratio = middle[0] / middle[1]
    values: dict[str, Value] = {"ours": round(middle[0], 1), "raw": round(middle[1], 1)}
    return Row(name, {**values, "ratio": round(ratio, 3), "target": target})


def alternately(runs: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """Run all in turn, in another order in each second round; return what each has measured."""
    found: list[list[T]] = [[] for _ in runs]
    for number in range(rounds):
        order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
        for which in order:
            found[which].append(runs[which]())
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, with a head for each other set of columns."""
    lines: list[str] = []
    width = max((len(row.name) for row in rows), default=0)
    head: list[str] = []
    for row in rows:
        shown = {k: v for k, v in row.values.items() if not isinstance(v, str)}
        if [*shown] != head:
            head = [*shown]
            lines.append(" " * width + "".join(f"  {name:>{_wide(name)}}" for name in head))
        cells = "".join(f"  {number(value):>{_wide(name)}}" for name, value in shown.items())
        lines.append(f"{row.name:{width}}{cells}  {row.failure and 'FAILS: ' + row.failure}")
    return "\n".join(line.rstrip() for line in lines)


def number(value: Value) -> str:
    """Return a value as people read it: three digits, or all of a large one."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _wide(name: str) -> int:
    return max(9, len(name))

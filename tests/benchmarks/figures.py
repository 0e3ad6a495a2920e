"""Holds the results of benchmarks: a figure of EMS, one of plain SQL, and the share to reach."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """``ratio`` is to be at least ``target``.

    Speeds: ``ours`` and ``raw`` are a second, and ratio = ours / raw. Growth: ``ours`` are the
    index and row reads with the large log, ``raw`` those with the small one, ratio = raw / ours.
    """

    name: str
    ours: float
    raw: float
    ratio: float
    target: float

    @property
    def reached(self) -> bool:
        return self.ratio >= self.target


def interleaved(
    name: str,
    ours: Callable[[], float],
    raw: Callable[[], float],
    *,
    rounds: int,
    target: float,
) -> Figure:
    """Run both in turn and compare the medians: what disturbs the machine disturbs both.

    Who begins changes from round to round. The first round of each only warms up.
    """
    ours()
    raw()
    speeds: dict[Callable[[], float], list[float]] = {ours: [], raw: []}
    for number in range(rounds):
        for run in (ours, raw) if number % 2 else (raw, ours):
            speeds[run].append(run())
    middle = {run: statistics.median(measured) for run, measured in speeds.items()}
    return Figure(
        name, round(middle[ours], 1), round(middle[raw], 1), middle[ours] / middle[raw], target
    )


def table(figures: Sequence[Figure]) -> str:
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'':{width}}  {'ours':>10}  {'raw':>10}  {'ratio':>5}  {'target':>6}"]
    lines += [
        f"{f.name:{width}}  {f.ours:>10,.0f}  {f.raw:>10,.0f}  {f.ratio:>5.2f}  {f.target:>6.2f}"
        f"  {'reached' if f.reached else 'NOT REACHED'}"
        for f in figures
    ]
    return "\n".join(lines)


def write_json(figures: Sequence[Figure], path: Path) -> None:
    rows = [{**asdict(figure), "ratio": round(figure.ratio, 3)} for figure in figures]
    path.write_text(json.dumps(rows, indent=2) + "\n")

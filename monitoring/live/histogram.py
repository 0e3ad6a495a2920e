"""Reads the histograms of latencies, as sparkjobs/rollup/histogram.py writes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

# A duration is known to within this part of it, or to within LEAST seconds.
ERROR = 0.05
GAMMA = (1 + ERROR) / (1 - ERROR)
LEAST = 0.001


def percentile(texts: Iterable[str], share: float) -> float | None:
    """Return one of the ``percentiles``."""
    return percentiles(texts, [share])[0]


def percentiles(texts: Iterable[str], shares: Sequence[float]) -> list[float | None]:
    """Return percentiles of all durations in these histograms, in seconds.

    Each is off by at most ERROR of the exact one, which lies between two durations, or by LEAST.
    ``shares`` are from 0 to 1. None if there are no durations.
    """
    counts: Counter[int] = Counter()
    for text in texts:
        for pair in text.split():
            number, _, count = pair.partition(":")
            counts[int(number)] += int(count)
    total = counts.total()
    return [_percentile(counts, share * (total - 1)) if total else None for share in shares]


def _percentile(counts: Counter[int], rank: float) -> float:
    low, high = (_at(counts, place(rank)) for place in (math.floor, math.ceil))
    return low + (high - low) * (rank - math.floor(rank))


def _at(counts: Counter[int], rank: int) -> float:
    """Return about the duration of this rank, from 0."""
    for number in sorted(counts):
        rank -= counts[number]
        if rank < 0:
            return LEAST * GAMMA**number * 2 / (GAMMA + 1) if number else LEAST
    raise IndexError(rank)

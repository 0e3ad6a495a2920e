"""Chooses the top of an axis: a round number at or above the highest value."""

from __future__ import annotations

import math

from monitoring.charts.chart import DURATION

STEPS = (1, 2, 4, 5, 10)
# In seconds: half of each is a round duration, too.
DURATIONS = [
    *(10, 20, 60, 2 * 60, 4 * 60, 10 * 60, 20 * 60, 40 * 60),
    *(hours * 3600 for hours in (1, 2, 4, 8, 12, 24, 48, 96, 192, 384, 768)),
]


def top(highest: float, unit: str = "") -> float:
    """Return 1, 2, 4 or 5 times a power of ten, at least ``highest``; 1 for nothing.

    Of durations, a round one.
    """
    if unit == DURATION and highest <= DURATIONS[-1]:
        return next(seconds for seconds in DURATIONS if seconds >= highest)
    if highest <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next((step * power for step in STEPS if step * power >= highest), 10 * power)

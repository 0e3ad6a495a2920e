"""Chooses the top of an axis: a round number at or above the highest value."""

from __future__ import annotations

import math

STEPS = (1, 2, 4, 5, 10)


def top(highest: float) -> float:
    """Return 1, 2, 4 or 5 times a power of ten, at least ``highest``; 1 for nothing."""
    if highest <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next((step * power for step in STEPS if step * power >= highest), 10 * power)

"""Computes rates as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from monitoring.sample.periods import Reading, rate

# A rate of now is over about this long, on every page: over a shorter time what comes in bursts
# would be 0/s here and 48/s there.
OVER = timedelta(minutes=5)
# Without a reading that is so old, over this long at least.
AT_LEAST = timedelta(seconds=30)


def speed(readings: Sequence[Reading], now: Reading | None) -> float | None:
    """Return messages a second since the newest reading that is at least OVER old.

    If there is none, the oldest reading counts that is AT_LEAST old. Unknown without one.
    """
    if now is None:
        return None
    ages = [(now[0] - one[0], one) for one in readings]
    usable = [(age, one) for age, one in ages if AT_LEAST <= age <= 2 * OVER]
    if not usable:
        return None
    enough = [(age, one) for age, one in usable if age >= OVER]
    chosen = min(enough, key=lambda pair: pair[0]) if enough else max(usable, key=lambda p: p[0])
    return rate(chosen[1], now)

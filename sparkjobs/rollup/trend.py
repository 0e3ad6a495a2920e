"""Fits a line through the lags of a group: how fast it grows, and when it will be 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)
# Messages by which the line must move over its samples. The slope of a lag that stays is seldom
# exactly 0 in floating-point numbers, and time to clear = lag / slope would be beyond any duration.
MOVES = 0.5

# When, and how many messages the group was behind; None: unknown.
Sample = tuple[datetime, int | None]


@dataclass(frozen=True)
class Trend:
    """Holds by how many messages a minute a lag grows, and the seconds until it is 0.

    Without two instants the trend is unknown: None. The time is unknown while the lag does not
    fall, and 0 if there is no lag.
    """

    trend: float | None
    clear_seconds: float | None


def fitted(samples: Sequence[Sample]) -> Trend:
    """Return the trend of these samples: the slope of a line by least squares."""
    newest, lag = max(samples, key=lambda sample: sample[0])
    known = [((at - newest) / MINUTE, behind) for at, behind in samples if behind is not None]
    slope = _slope(known)
    if lag and slope is not None and slope < 0:
        return Trend(slope, lag * 60 / -slope)
    return Trend(slope, 0.0 if lag == 0 else None)


def _slope(points: Sequence[tuple[float, int]]) -> float | None:
    count = len(points)
    if not count:
        return None
    middle, mean = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle) ** 2 for x, _ in points)
    if not spread:
        return None
    slope = sum((x - middle) * (y - mean) for x, y in points) / spread
    times = [x for x, _ in points]
    return slope if abs(slope) * (max(times) - min(times)) >= MOVES else 0.0

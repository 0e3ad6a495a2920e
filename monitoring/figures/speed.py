"""Computes rates as they are now, and how long a backlog will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.sample.periods import Reading, rate

# A rate of now is over at least this long, since shorter ones jump about, and over at most so long.
AT_LEAST = timedelta(seconds=30)
AT_MOST = timedelta(minutes=6)
# The time to clear a backlog is from the rates over about this long.
CLEAR_OVER = timedelta(minutes=5)

# Below this share of what comes in, a difference between in and out means nothing.
STEADY = 0.02


def speed(
    readings: Sequence[Reading], now: Reading | None, over: timedelta = AT_LEAST
) -> float | None:
    """Return messages a second since the newest reading that is at least ``over`` old.

    If there is none, the oldest reading counts that is AT_LEAST old. Unknown without one.
    """
    if now is None:
        return None
    ages = [(now[0] - one[0], one) for one in readings]
    usable = [(age, one) for age, one in ages if AT_LEAST <= age <= max(AT_MOST, over * 2)]
    if not usable:
        return None
    enough = [(age, one) for age, one in usable if age >= over]
    chosen = min(enough, key=lambda pair: pair[0]) if enough else max(usable, key=lambda p: p[0])
    return rate(chosen[1], now)


@dataclass(frozen=True)
class Clearing:
    """Says what becomes of a backlog: "falls", "grows" or "steady"; None is unknown."""

    trend: str | None = None
    time: timedelta | None = None  # until nothing is behind, if it falls
    change: float | None = None  # messages a second; below 0 it falls


def clearing(behind: int | None, published: float | None, consumed: float | None) -> Clearing:
    """Return what becomes of so many messages behind, at these rates."""
    if not behind or published is None or consumed is None:
        return Clearing()
    change = published - consumed
    if abs(change) <= STEADY * max(published, consumed):
        return Clearing("steady", None, change)
    if change > 0:
        return Clearing("grows", None, change)
    return Clearing("falls", timedelta(seconds=int(behind / -change)), change)


def since(now: datetime, at: datetime | None) -> timedelta | None:
    """Return how long ago ``at`` was, never below zero."""
    return None if at is None else max(now - at, timedelta(0))

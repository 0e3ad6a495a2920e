"""Defines Rate: how many handler calls of a group may begin in a second, in all its processes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from streams.errors import InvalidRate

SECONDS = {"s": 1, "m": 60, "h": 3600}
TEXT = re.compile(r"([1-9][0-9]{0,8})/([smh])(?:,\s*burst=([1-9][0-9]{0,8}))?")
# The most starts a second: a slot is a microsecond then.
MOST = 1_000_000
# A start may be late by so many seconds or more: a thread may have to wait for its processor.
AT_LEAST_LATE = 0.05
# Without a burst it may be late by twice as much.
USUALLY_LATE = 0.1
# What is left of that when a start is taken, at most: until it is made.
MARGIN = 0.05

MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Rate:
    """``starts`` each second, minute or hour, and ``burst`` more at once: see ``late``.

    A group has slots, ``interval`` apart. A message has one, and begins in it or ``late`` after it
    at most. So those that begin in a second have their slots in 1 s + ``late``, and however late
    each of them is, there are at most rate + burst. All lengths are in microseconds.
    """

    starts: int
    unit: str
    burst: int

    def __post_init__(self) -> None:
        if self.a_second > MOST:
            raise InvalidRate(f"A rate is at most {MOST}/s.")
        if self.burst < (least := _least_burst(self.a_second)):
            raise InvalidRate(f"A rate of {self.starts}/{self.unit} needs a burst of {least}.")

    @classmethod
    def of(cls, text: str, burst: int | None = None) -> Rate:
        """Read a rate from text: ``50/s``, ``90/m``, ``10/h`` or ``50/s, burst=10``.

        Without a burst it is a tenth of what may begin in a second, at least 1. Raises InvalidRate.
        """
        match = TEXT.fullmatch(text.strip())
        if match is None or (match[3] and burst is not None):
            raise InvalidRate
        starts, unit = int(match[1]), match[2]
        if match[3]:
            burst = int(match[3])
        if burst is None:
            a_second = starts / SECONDS[unit]
            burst = max(math.ceil(a_second * USUALLY_LATE), _least_burst(a_second))
        return cls(starts, unit, burst)

    def __str__(self) -> str:
        return f"{self.starts}/{self.unit}, burst={self.burst}"

    @property
    def a_second(self) -> float:
        return self.starts / SECONDS[self.unit]

    @property
    def interval(self) -> int:
        """Return the time from one slot to the next."""
        return -(-SECONDS[self.unit] * MICROSECONDS // self.starts)

    @property
    def late(self) -> int:
        """Return how long after its slot a message may begin."""
        most = _latest(self.a_second, self.burst)
        enough = max((self.burst - 1) / self.a_second, USUALLY_LATE)
        return int(min(most, enough) * MICROSECONDS) - 1

    @property
    def depth(self) -> int:
        """Return how old a slot may be that is taken: so much is left of its time until then."""
        return self.late - min(self.late // 2, int(MARGIN * MICROSECONDS))

    @property
    def at_once(self) -> int:
        """Return how many messages one call may have: all begin in the slot of the last one."""
        return self.depth // self.interval + 1


def _latest(a_second: float, burst: int) -> float:
    """Return by how many seconds each start must be less late than this.

    In ``1 + late`` seconds there are at most a_second · (1 + late) + 1 slots, of which the whole
    ones count: they must be no more than a_second + burst.
    """
    return math.floor(a_second + burst) / a_second - 1


def _least_burst(a_second: float) -> int:
    burst = max(1, math.ceil(a_second * AT_LEAST_LATE))
    while _latest(a_second, burst) < AT_LEAST_LATE:
        burst += 1
    return burst

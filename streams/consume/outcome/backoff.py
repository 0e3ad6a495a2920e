"""Computes retry delays, in pure functions without a database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

# The largest share by which a delay is shortened or lengthened at random, so that messages that
# failed together do not come back together.
JITTER = 0.2


def delay_after(attempt: int, ladder: Sequence[float], *, jitter: float = JITTER) -> timedelta:
    """Return how long to wait after the failed attempt ``attempt`` (from 1).

    ``ladder`` holds the delays in seconds; its last one repeats. ``jitter`` is the largest share
    by which the delay is shortened or lengthened.
    """
    seconds = ladder[min(attempt, len(ladder)) - 1]
    return timedelta(seconds=seconds * random.uniform(1 - jitter, 1 + jitter))  # noqa: S311


def exhausted(attempt: int, max_retries: int) -> bool:
    """Tell whether no attempt is left after the failed attempt ``attempt`` (from 1)."""
    return attempt > max_retries

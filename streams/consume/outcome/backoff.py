"""The retry ladder: pure functions, no database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

# Jitter keeps messages that failed together from coming back together.
JITTER = 0.2


def delay_after(attempt: int, ladder: Sequence[float], *, jitter: float = JITTER) -> timedelta:
    """How long to wait after the failed attempt ``attempt`` (from 1).

    The last step of the ladder repeats. ``jitter`` is the largest share by which the delay is
    shortened or lengthened.
    """
    seconds = ladder[min(attempt, len(ladder)) - 1]
    return timedelta(seconds=seconds * random.uniform(1 - jitter, 1 + jitter))  # noqa: S311


def exhausted(attempt: int, max_retries: int) -> bool:
    """Whether no attempt is left after the failed attempt ``attempt`` (from 1)."""
    return attempt > max_retries

"""Says when a prepared message is checked or sent again."""

from __future__ import annotations

import random
from datetime import timedelta

from streams.runtime_settings import system

# A message that nobody has decided about for so long is for a person to decide.
DAY = timedelta(hours=24)
# A check that is due for so long is made by nobody.
OVERDUE = timedelta(minutes=5)
# By how much a pause is longer or shorter, so that messages of one moment come apart.
JITTER = 0.1


def pause_after(count: int, using: str) -> timedelta:
    """Return how long to wait after check or try ``count``: count + 1 steps, ± 10 %."""
    step: int = system("verifyStepSeconds", using)
    return timedelta(seconds=step * (count + 1) * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311

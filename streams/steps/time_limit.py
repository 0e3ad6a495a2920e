"""Ends a step after its time, between two of its transactions."""

from __future__ import annotations

import logging
import time

from streams.logs import event

logger = logging.getLogger("streams.maintenance")

# How many seconds a step runs before it leaves the rest to the next one. Longer than any step takes
# that keeps up, and shorter than the lease of a client.
STEP_SECONDS = 5.0


class TimeLimit:
    """The time of one run of the step ``name``."""

    def __init__(self, name: str, using: str) -> None:
        self._name = name
        self._using = using
        self.ends = time.monotonic() + STEP_SECONDS

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends

    def say(self) -> None:
        """Write that the step has stopped before it was done."""
        logger.info(
            "The step %s has run for %g s and stops here: the next one goes on",
            *(self._name, STEP_SECONDS),
            extra=event(
                "step.unfinished", step=self._name, seconds=STEP_SECONDS, database=self._using
            ),
        )

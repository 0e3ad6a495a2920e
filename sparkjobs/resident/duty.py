"""Says when a duty of the service is due: by its own rule, and later after failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkjobs.database import Connection

# Seconds after the first failure, doubled with each further one, and the most.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 300.0


@dataclass
class Duty:
    """What the service does again and again.

    ``work`` does it. ``is_due`` is asked each time before, every ``every`` seconds at most.
    ``limit`` is in seconds: a duty that takes longer ends the process.
    """

    name: str
    work: Callable[[], None]
    is_due: Callable[[Connection], bool]
    every: float
    limit: int
    failures: int = 0
    error: str = ""
    next_at: float = 0.0

    def done(self, began: float) -> None:
        self.failures, self.error = 0, ""
        self.next_at = began + self.every

    def failed(self, now: float, error: BaseException) -> None:
        text = str(error).strip() or "no text"
        self.error = f"{self.name}: {type(error).__name__}: {text.splitlines()[0]}"
        self.next_at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self.failures)
        self.failures += 1

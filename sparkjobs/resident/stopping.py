"""Records that the service shall end, and lets a job that is at work end first."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

# Seconds that the job at work gets after SIGTERM. What it has not committed then is not done.
DRAIN_SECONDS = 25


class StopSignal:
    """SIGTERM, noted. The handler only records; the main thread looks between jobs."""

    def __init__(self) -> None:
        self._asked = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._note)
        # Wakes the main thread from wait(), whichever thread the signal has reached.
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def is_asked(self) -> bool:
        return self._asked

    def wait(self, seconds: float) -> None:
        """Wait, at most until the service shall end."""
        if not self._asked:
            select.select([self._read], [], [], max(0.0, seconds))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        # The default action of SIGALRM ends the process, whatever it waits for, and its JVM.
        signal.alarm(DRAIN_SECONDS)

"""Ctrl-C, a kill, a closed terminal: noted when they come, acted upon between two flights.

An exception out of the blue could leave a transaction open, and with it SQLite locked for the
consumers that are to finish what they are doing.
"""

from __future__ import annotations

import signal
from types import FrameType

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The demo is to end now."""


def hold_back() -> None:
    """Let signals wait until somebody can act upon them, also across an exec."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)


class Interruption:
    def __init__(self) -> None:
        self.times = 0

    def install(self) -> None:
        """Note from now on what has come since :func:`hold_back`, and what comes."""
        for number in STOP:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.times:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.times += 1

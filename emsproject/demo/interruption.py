"""Records Ctrl-C, a kill or a closed terminal; the demo acts upon it between two flights.

An exception at any point could leave a transaction open, and with it SQLite locked for the
consumers, which must finish what they are doing.
"""

from __future__ import annotations

import signal
from types import FrameType

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The demo must end now."""


def hold_back() -> None:
    """Block signals until the demo can act upon them, also across an exec."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)


class Interruption:
    def __init__(self) -> None:
        self.times = 0

    def install(self) -> None:
        """Record the signals since :func:`hold_back`, and those to come."""
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

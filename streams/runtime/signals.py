"""Signals of the operating system, for the main thread to read."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Handlers that only record: Event.set() inside a handler can deadlock with its waiter."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._untold = 0

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # --reload: the main thread is the reloader's, and so are the signals
        for number in STOP:
            signal.signal(number, _ignore)
        # The interpreter itself writes the number of each signal into the pipe.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> bool:
        """Whether a stop signal has come, waiting up to ``seconds`` for it. Each is told once."""
        if not self._untold and select.select([self._reader], [], [], seconds)[0]:
            self._untold = sum(1 for number in os.read(self._reader, 64) if number in STOP)
        if not self._untold:
            return False
        self._untold -= 1
        return True


def _ignore(number: int, frame: FrameType | None) -> None:
    pass

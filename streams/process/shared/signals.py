"""Records signals of the operating system, for the main thread to read."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType
from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Records stop signals in a pipe: Event.set() in a handler can deadlock with its waiter."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._untold = 0
        self._before: dict[signal.Signals, Any] = {}
        self._fd_before = -1
        self._mask = threading.local()

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # --reload: the main thread is the reloader's, and so are the signals
        for number in STOP:
            self._before[number] = signal.signal(number, _ignore)
        # The interpreter itself writes the number of each signal into the pipe.
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(
            before=self._hold, after_in_parent=self._let_go, after_in_child=self._forget
        )

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a stop signal; return whether one came. Each counts once."""
        if not self._untold and select.select([self._reader], [], [], seconds)[0]:
            self._untold = sum(1 for number in os.read(self._reader, 64) if number in STOP)
        if not self._untold:
            return False
        self._untold -= 1
        return True

    def restore(self) -> None:
        """Restore the signal handlers: a script that called the command may go on after it."""
        if self._before:
            signal.set_wakeup_fd(self._fd_before)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before = {}
        os.close(self._reader)
        os.close(self._writer)

    # A child that a handler forks must not write its signals into our pipe, from its first
    # instruction on. So stop signals are blocked during the fork.

    def _hold(self) -> None:
        if self._before:
            self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)

    def _let_go(self) -> None:
        if hasattr(self._mask, "before"):
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)
            del self._mask.before

    def _forget(self) -> None:
        if self._before:
            signal.set_wakeup_fd(-1)
            for number in STOP:
                signal.signal(number, signal.SIG_DFL)
        self._let_go()


def _ignore(number: int, frame: FrameType | None) -> None:
    pass

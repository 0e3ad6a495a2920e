"""Records signals of the operating system, for the main thread to read."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType
from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# What the parent of several processes writes into their pipes: stop, or end at once.
STOP_REQUEST, END = b"s", b"e"


class Signals:
    """The stop signals, in a pipe: Event.set() in a handler can deadlock with its waiter.

    ``parent`` is a pipe in which the parent process tells this one to stop. A process manager may
    signal all processes, and a terminal does, so the request of the parent and the first signal are
    one and the same. The end of the pipe, when the parent is gone, is a request, too.
    """

    def __init__(self, parent: int | None = None) -> None:
        self._parent = parent
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._signals = 0  # so many have come
        self._requests = 0  # 1: the parent wants this process to stop; 2: to end at once
        self._told = 0
        self._before: dict[signal.Signals, Any] = {}
        self._fd_before = -1
        self._mask = threading.local()

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # --reload: the main thread is the reloader's, and so are the signals
        for number in STOP:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: a terminal that is closed ends nothing
            self._before[number] = signal.signal(number, _ignore)
        # The interpreter itself writes the number of each signal into the pipe.
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(
            before=self._hold, after_in_parent=self._let_go, after_in_child=self._forget
        )

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a stop signal; return whether one came. Each counts once."""
        if not self._untold:
            self._look(seconds)
        if not self._untold:
            return False
        self._told += 1
        return True

    @property
    def _untold(self) -> bool:
        return max(self._signals, self._requests) > self._told

    def _look(self, seconds: float) -> None:
        pipes = [self._reader] if self._parent is None else [self._reader, self._parent]
        ready = select.select(pipes, [], [], seconds)[0]
        if self._reader in ready:
            self._signals += sum(1 for number in os.read(self._reader, 64) if number in STOP)
        if self._parent in ready:
            self._hear(self._parent)

    def _hear(self, parent: int) -> None:
        said = os.read(parent, 64)
        self._requests = max(self._requests, 2 if END in said else 1)
        if not said:
            os.close(parent)
            self._parent = None

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
            for number in self._before:
                signal.signal(number, signal.SIG_DFL)
        self._let_go()


def _ignore(number: int, frame: FrameType | None) -> None:
    pass

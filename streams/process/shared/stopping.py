"""Tells all threads of a consumer process that it is to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Stopping:
    """The stop of a process: it runs, then claims no more and finishes what runs."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self.failure: str | None = None

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when stopping begins, from the thread that begins it."""
        self._callbacks.append(callback)

    def stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            for callback in self._callbacks:
                callback()

    def fail(self, reason: str) -> None:
        """Stop with exit status 1: the process manager starts a fresh process."""
        self.failure = self.failure or reason
        self.stop()

    def fail_unanswered(self, thread: str, seconds: float) -> None:
        """Stop because the database has not answered a thread for so many seconds."""
        self.fail(f"the database has not answered the thread {thread} for {seconds:.0f} s")

    def wait(self, seconds: float) -> bool:
        """Sleep for ``seconds`` or until stopping begins; return whether it has begun."""
        return self._stopping.wait(seconds)

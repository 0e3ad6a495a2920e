"""Lets handler calls run: many together, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Implements a readers-writer lock that prefers the writer.

    A message whose process died runs alone in the next process. If it kills that one, too, no
    other message has spent an attempt for nothing.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._together = 0
        self._alone = False
        self._waiting_alone = 0

    @property
    def wanted_alone(self) -> bool:
        """Tell whether a message waits to run alone; workers with other messages then stop soon."""
        return self._waiting_alone > 0

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._together += 1
        try:
            yield
        finally:
            with self._condition:
                self._together -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._condition:
            self._waiting_alone += 1
            self._condition.wait_for(lambda: not self._alone and not self._together)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()

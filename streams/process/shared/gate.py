"""The gate through which handler calls go: many at once, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """A readers-writer lock that prefers the writer.

    A message whose process died runs alone in the next one: if it kills that too, it takes no
    neighbour along, whose attempts would be used up for nothing.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._together = 0
        self._alone = False
        self._waiting_alone = 0

    @property
    def wanted_alone(self) -> bool:
        """Whether a message waits to run alone: who runs with others should come to an end."""
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

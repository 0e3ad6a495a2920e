"""Lets the handler calls of a group run: many together, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """A readers-writer lock for the calls of one group in this process.

    A message with which two processes have died runs alone in its group. If it ends this process,
    too, no other message of the group has spent an attempt for nothing. Neither side waits for
    longer than one call of the other: after a call that ran alone, those go on that waited behind
    it, and then the next one alone.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._together = 0
        self._waiting_together = 0
        self._alone = False
        self._waiting_alone = 0
        self._before_the_next_alone = 0
        self._ended = False

    @property
    def wanted_alone(self) -> bool:
        """Tell whether a message waits to run alone."""
        return self._waiting_alone > 0

    def end(self) -> None:
        """Let all go in that wait: the process is stopping, and they begin no call any more."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._condition:
            self._waiting_together += 1
            self._condition.wait_for(self._may_join)
            self._waiting_together -= 1
            self._before_the_next_alone = max(0, self._before_the_next_alone - 1)
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
            self._condition.wait_for(self._may_be_alone)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._before_the_next_alone = self._waiting_together
                self._condition.notify_all()

    def _may_join(self) -> bool:
        its_turn = not self._waiting_alone or self._before_the_next_alone > 0
        return self._ended or (not self._alone and its_turn)

    def _may_be_alone(self) -> bool:
        return self._ended or not (self._alone or self._together or self._before_the_next_alone)

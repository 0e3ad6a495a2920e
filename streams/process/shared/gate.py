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

    Calls run together nearly always, and thousands in a second. So whoever joins takes the lock
    only while somebody is alone, or wants to be: it goes in first and then looks at ``_closed``,
    and the other side sets ``_closed`` first and then looks at who is inside. One sees the other.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside: set[Together] = set()
        self._closed = False
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

    def together(self) -> Together:
        return Together(self)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._condition:
            self._closed = True
            self._waiting_alone += 1
            self._condition.wait_for(self._may_be_alone)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._closed = self._waiting_alone > 0
                self._before_the_next_alone = self._waiting_together
                self._condition.notify_all()

    def enter(self, caller: Together) -> None:
        """Let ``caller`` in, at once or after the one that is alone."""
        self._inside.add(caller)
        if self._closed:
            with self._condition:
                self._inside.discard(caller)
                self._condition.notify_all()
                self._waiting_together += 1
                self._condition.wait_for(self._may_join)
                self._waiting_together -= 1
                self._before_the_next_alone = max(0, self._before_the_next_alone - 1)
                self._inside.add(caller)

    def leave(self, caller: Together) -> None:
        self._inside.discard(caller)
        if self._closed:
            with self._condition:
                self._condition.notify_all()

    def _may_join(self) -> bool:
        its_turn = not self._waiting_alone or self._before_the_next_alone > 0
        return self._ended or (not self._alone and its_turn)

    def _may_be_alone(self) -> bool:
        return self._ended or not (self._alone or self._inside or self._before_the_next_alone)


class Together:
    """The place of one call that runs beside others."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.enter(self)

    def __exit__(self, *_error: object) -> None:
        self._gate.leave(self)

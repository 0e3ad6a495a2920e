"""Lets the threads of a process claim from a cursor one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# Who has waited so many seconds goes on without its turn, and waits in the server: the cursor may
# be locked there for long, and each thread must get that answer.
PATIENCE_SECONDS = 5.0


class CursorLocks:
    """The locks of this process on the cursors of one group: who comes first is served first.

    Only one claim at a time can have the row of a cursor, so a thread that wants it beside another
    one of its process waits here. A wait in the server would have a transaction open, and a server
    thread that is put to sleep and woken. It is the lock of the row that gives each offset to one
    claim: processes wait for each other in the server. Whoever takes a lock here has no transaction
    open, otherwise two threads could wait for each other.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        # Of each cursor that a thread has: the turns of those that wait. Each is a lock that is
        # held until its turn has come.
        self._waiting: dict[int, deque[threading.Lock]] = {}

    @contextmanager
    def taken(self, cursor_id: int, *, wait: bool) -> Iterator[bool]:
        """Have the cursor in the block; False if another thread has it and goes on having it."""
        if not self._take(cursor_id, wait):
            yield False
            return
        try:
            yield True
        finally:
            self._give_back(cursor_id)

    def _take(self, cursor_id: int, wait: bool) -> bool:
        with self._mutex:
            waiting = self._waiting.get(cursor_id)
            if waiting is None:
                self._waiting[cursor_id] = deque()
                return True
            if not wait:
                return False
            turn = threading.Lock()
            turn.acquire()
            waiting.append(turn)
        if turn.acquire(timeout=PATIENCE_SECONDS):  # the thread before gives it back
            return True
        with self._mutex:
            if turn not in waiting:
                return True  # given just now
            waiting.remove(turn)
            return False

    def _give_back(self, cursor_id: int) -> None:
        with self._mutex:
            if waiting := self._waiting[cursor_id]:
                waiting.popleft().release()
            else:
                del self._waiting[cursor_id]

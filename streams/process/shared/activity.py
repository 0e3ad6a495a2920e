"""Counts the busy workers of a process, and tells when a drain has come to its end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Activity:
    """How many workers are busy, and on which databases nothing is left to do.

    A handler may send to a topic on any database. So nothing is left in the process only if a look
    at each database has found nothing, and no worker was busy from the first of these looks to the
    end of the last one.
    """

    def __init__(self, databases: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._busy = 0
        self._steps = 0
        self._databases = set(databases)
        # By database: how often a worker had become busy when a look found nothing there.
        self._empty: dict[str, int] = {}

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a worker as busy inside the block, where it may claim or hold something."""
        with self._lock:
            self._busy += 1
            self._steps += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def now(self) -> tuple[int, int]:
        """Return how many workers are busy now, and how often a worker has become busy."""
        with self._lock:
            return self._busy, self._steps

    def is_over(self, database: str, since: tuple[int, int]) -> bool:
        """Note that a look at ``database`` has found nothing; return whether nothing is left.

        ``since`` is what ``now()`` returned before the look.
        """
        with self._lock:
            if self._busy or since != (0, self._steps):
                return False
            self._empty[database] = self._steps
            return all(self._empty.get(one) == self._steps for one in self._databases)

    def leave_out(self, database: str) -> None:
        """Expect no look at ``database``: no group runs there."""
        with self._lock:
            self._databases.discard(database)

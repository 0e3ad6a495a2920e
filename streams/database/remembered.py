"""Holds what a process has read of the tables, and lets it forget all of that at once."""

from __future__ import annotations

import os
import time
from typing import Any, TypeVar

from streams.database.transactions import in_test_case

K = TypeVar("K")
V = TypeVar("V")

_all: list[Forgettable[Any, Any]] = []


class Forgettable(dict[K, V]):
    """What is forgotten when a test empties the tables or changes the settings.

    A forked process begins without it, unless it ``survives_forks``.
    """

    def __init__(self, *, survives_forks: bool = False) -> None:
        super().__init__()
        self.survives_forks = survives_forks
        _all.append(self)


class Fresh(Forgettable[K, tuple[float, V]]):
    """What is read again after some seconds."""

    def fresh(self, key: K) -> V | None:
        """Return the value of ``key``; None if it is unknown, or too old."""
        until, value = self.get(key, (0.0, None))
        return value if time.monotonic() < until else None

    def keep(self, key: K, value: V, until: float, using: str) -> V:
        """Return ``value``; remember it, unless a TestCase will roll back what was read.

        ``until`` is a time of the monotonic clock. It counts from before the value was read: the
        reply may have come late.
        """
        if not in_test_case(using):
            self[key] = until, value
        return value


def forget(**kwargs: Any) -> None:
    """Forget everything, as a new process; also at a signal of Django."""
    for one in _all:
        one.clear()


def _forget_in_fork() -> None:
    for one in _all:
        if not one.survives_forks:
            one.clear()


os.register_at_fork(after_in_child=_forget_in_fork)

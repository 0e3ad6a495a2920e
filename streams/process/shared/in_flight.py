"""The deliveries that this process has in hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from streams.consume.registry import Registration


class Held(Protocol):
    """What one worker has in hand."""

    registration: Registration
    lost: bool

    def time_left(self) -> timedelta:
        """Until its running call, or the next one, is overdue; negative when it is."""

    def renew(self, left: timedelta) -> None:
        """Extend its lease, if it has one, by ``left``."""


class InFlight:
    """The deliveries that this process holds, for the heartbeat to extend."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlings: set[Held] = set()
        self._busy = 0
        self._steps = 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a worker may claim or hold something."""
        with self._lock:
            self._busy += 1
            self._steps += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def activity(self) -> tuple[int, int]:
        """How many workers are busy now, and how often one has become so."""
        with self._lock:
            return self._busy, self._steps

    def add(self, handling: Held) -> None:
        with self._lock:
            self._handlings.add(handling)

    def discard(self, handling: Held) -> None:
        with self._lock:
            self._handlings.discard(handling)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._handlings)

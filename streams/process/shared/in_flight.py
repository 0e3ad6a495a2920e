"""Holds the deliveries that the workers of this process handle now."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Protocol

from streams.consume.registry import Registration


class Held(Protocol):
    """Describes the delivery, or stretch of the log, that one worker handles."""

    registration: Registration
    lost: bool

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs, or the next call waits for its turn."""

    def time_left(self) -> timedelta:
        """Return the time until its running or next call is overdue; negative once it is."""

    def renew(self, left: timedelta) -> None:
        """Extend its lease, if it has one, by ``left``."""


# A call that is overdue by more than this hangs: the process stops, and does not wait for it.
HUNG_GRACE = timedelta(seconds=10)


def hung(held: Held) -> bool:
    """Tell whether its running call is overdue by more than HUNG_GRACE."""
    return held.calling and held.time_left() < -HUNG_GRACE


class InFlight:
    """The deliveries of one database that this process holds, for the heartbeat to renew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlings: set[Held] = set()

    def add(self, handling: Held) -> None:
        with self._lock:
            self._handlings.add(handling)

    def discard(self, handling: Held) -> None:
        with self._lock:
            self._handlings.discard(handling)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._handlings)

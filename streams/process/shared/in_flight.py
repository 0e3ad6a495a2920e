"""Holds the deliveries that the workers of this process handle now."""

from __future__ import annotations

import threading
from datetime import timedelta

from streams.deliver.calls import Calls

# A call that is overdue by more than this hangs: the process stops, and does not wait for it.
HUNG_GRACE = timedelta(seconds=10)


def hung(calls: Calls) -> bool:
    """Tell whether its running call was given up, or is overdue by more than HUNG_GRACE.

    A time that its message has set has no grace: the lease, which others look at, lasts longer.
    """
    late = calls.given_up or calls.overdue or calls.time_left() < -HUNG_GRACE
    return calls.calling and late


class InFlight:
    """The deliveries that this process holds, whose leases the heartbeat renews."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[Calls] = set()

    def add(self, calls: Calls) -> None:
        with self._lock:
            self._calls.add(calls)

    def discard(self, calls: Calls) -> None:
        with self._lock:
            self._calls.discard(calls)

    def all(self) -> list[Calls]:
        with self._lock:
            return list(self._calls)

"""Renews the leases of this client and of its deliveries, and notices hung calls."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.db import OperationalError

from streams.conf import RENEW_SECONDS
from streams.database.retrying import connection_lost, transient
from streams.deliver.calls import Calls
from streams.logs import event
from streams.process.runtime import Runtime
from streams.process.shared.death_lock import DeathLock
from streams.process.shared.in_flight import hung

logger = logging.getLogger("streams.heartbeat")


class Heartbeat:
    """Renews, in each step, the lease of the client and those of its deliveries once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.lock = DeathLock(runtime.client, runtime.using)
        self._due_at = 0.0

    def beat(self) -> float:
        """Keep the lock, and do a step if one is due."""
        self.lock.keep()
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self.step()
        return max(0.0, min(self._due_at - time.monotonic(), self.lock.pause))

    def step(self) -> float:
        client, handlings = self._runtime.client, self._runtime.held.all()
        if not client.renew():
            for handling in handlings:
                handling.lost = True
            logger.warning(
                "The lease of %s had expired: registering again",
                client.client_id,
                extra=event("lease.renewed_late", client=client.client_id),
            )
            client.register()
            return self._pause()
        for handling in handlings:
            left = handling.time_left()
            if left > timedelta(0):
                self._renew(handling, left)
            if hung(handling):
                # A running call cannot be interrupted; it ends with its process.
                why = "was given up" if handling.given_up else "hangs"
                self._runtime.lifecycle.fail(f"a call of {handling.registration.name} {why}")
        return self._pause()

    def _renew(self, handling: Calls, left: timedelta) -> None:
        try:
            handling.renew(left)
        except OperationalError as error:
            # Another transaction has locked this row. The other leases must not wait for it; the
            # next step tries this one again.
            if connection_lost(error) or not transient(error):
                raise

    def _pause(self) -> float:
        # A delivery must not expire between two steps while its calls are in time.
        shortest = min(feed.consume_timeout() for feed in self._runtime.feeds)
        return min(RENEW_SECONDS, shortest.total_seconds() / 4)

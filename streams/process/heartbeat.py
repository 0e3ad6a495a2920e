"""Renews the leases of this client and of its deliveries, and notices hung calls."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from django.db import OperationalError

from streams.conf import RENEW_SECONDS
from streams.database.retrying import connection_lost, transient
from streams.logs import event
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.process.shared.in_flight import Held, InFlight, hung
from streams.process.shared.stopping import Stopping

logger = logging.getLogger("streams.heartbeat")


class Heartbeat:
    """Renews, in each step, the lease of the client and those of its deliveries once."""

    def __init__(
        self, client: Client, held: InFlight, lifecycle: Stopping, feeds: Sequence[RunningGroup]
    ) -> None:
        self._client = client
        self._held = held
        self._lifecycle = lifecycle
        self._feeds = feeds

    def step(self) -> float:
        handlings = self._held.all()
        if not self._client.renew():
            for handling in handlings:
                handling.lost = True
            logger.warning(
                "The lease of %s had expired: registering again",
                self._client.client_id,
                extra=event("lease.renewed_late", client=self._client.client_id),
            )
            self._client.register()
            return self._pause()
        for handling in handlings:
            left = handling.time_left()
            if left > timedelta(0):
                self._renew(handling, left)
            elif hung(handling):
                # A running call cannot be interrupted; it ends with its process.
                self._lifecycle.fail(f"a call of {handling.registration.name} hangs")
        return self._pause()

    def _renew(self, handling: Held, left: timedelta) -> None:
        try:
            handling.renew(left)
        except OperationalError as error:
            # Another transaction has locked this row. The other leases must not wait for it; the
            # next step tries this one again.
            if connection_lost(error) or not transient(error):
                raise

    def _pause(self) -> float:
        # A delivery must not expire between two steps while its calls are in time.
        shortest = min(feed.consume_timeout() for feed in self._feeds)
        return min(RENEW_SECONDS, shortest.total_seconds() / 4)

"""The identity of this process as a consumer, and its lease."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from uuid import uuid4

from streams.conf import LEASE_SECONDS
from streams.database.retrying import retrying
from streams.models import Consumer, UtcNow
from streams.models.consumer import LEASE
from streams.produce.identity import host


class Client:
    """A client id "ip@pid@uuid", registered in each group before the first claim.

    ``alive`` is this process's own view, on a clock that runs on while it is frozen, and starts
    before the renewal is sent: it never believes in a lease that the database has ended.
    """

    def __init__(self, groups: Sequence[int], using: str) -> None:
        self._groups = groups
        self._using = using
        self._lease_ends = 0.0
        self.client_id = ""

    @property
    def alive(self) -> bool:
        return time.monotonic() < self._lease_ends

    def register(self) -> None:
        """Take a new id, in all groups."""
        asked = time.monotonic()
        client_id = f"{host()}@{os.getpid()}@{uuid4().hex[:12]}"
        rows = [
            Consumer(client_id=client_id, group_id=group, lease_until=UtcNow(LEASE))
            for group in self._groups
        ]

        def write() -> None:
            consumers = Consumer.objects.using(self._using)
            # Again after a lost reply: the rows may be there.
            consumers.filter(client_id=client_id).delete()
            consumers.bulk_create(rows)

        retrying(write, self._using)
        self.client_id = client_id
        self._lease_ends = asked + LEASE_SECONDS

    def renew(self) -> bool:
        """Extend the lease; False if it had ended: what this client holds is others' now."""
        asked = time.monotonic()
        consumers = Consumer.objects.using(self._using)
        if not consumers.renew(self.client_id, self._groups):
            return False
        self._lease_ends = asked + LEASE_SECONDS
        return True

    def deregister(self) -> None:
        self._lease_ends = 0.0
        mine = Consumer.objects.using(self._using).filter(client_id=self.client_id)
        # Repeated: the server may have ended the connection of a main thread that only waits.
        retrying(mine.delete, self._using, patience=1.0)

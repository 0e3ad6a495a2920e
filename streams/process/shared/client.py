"""Registers this process as a client of its groups, and renews its lease."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from streams.conf import LEASE_SECONDS
from streams.database.retrying import retrying
from streams.models import Consumer, ConsumerGroup, UtcNow
from streams.models.consumer import LEASE
from streams.produce.identity import host


class Client:
    """The client id "ip@pid@uuid", registered in each group before the first claim.

    ``note`` is told each id before there is a claim with it.

    ``alive`` is this process's own view of its lease. Its clock starts before the renewal is
    sent and goes on while the process is frozen, so ``alive`` is never true for a lease that
    has expired in the database.
    """

    def __init__(
        self,
        groups: Sequence[int],
        using: str,
        note: Callable[[str], None] = lambda client_id: None,
    ) -> None:
        self.groups = groups
        # Each id is registered in all groups that were joined before it.
        self._joining = threading.Lock()
        self._note = note
        self._using = using
        self._lease_ends = 0.0
        self.client_id = ""

    @property
    def alive(self) -> bool:
        return time.monotonic() < self._lease_ends

    def keeps(self, claimed_as: str) -> bool:
        """Tell whether what was claimed under this client id is under the lease.

        It is not if the claim has waited out an outage after which another id was taken.
        """
        # In this order: a new id is set before its lease begins.
        return self.alive and self.client_id == claimed_as

    def register(self) -> None:
        """Take a new client id, and register it in all groups."""
        with self._joining:
            self._register()

    def _register(self) -> None:
        asked = time.monotonic()
        client_id = f"{host()}@{os.getpid()}@{uuid4().hex[:12]}"
        rows = [
            Consumer(client_id=client_id, group_id=group, lease_until=UtcNow(LEASE))
            for group in self.groups
        ]

        def write() -> None:
            consumers = Consumer.objects.using(self._using)
            # On a repetition after a lost reply the rows may exist already.
            consumers.filter(client_id=client_id).delete()
            consumers.bulk_create(rows)

        retrying(write, self._using)
        self._note(client_id)
        self.client_id = client_id
        self._lease_ends = asked + LEASE_SECONDS

    def join(self, group: int) -> None:
        """Register the client in one more group, before its first claim there."""
        consumers = Consumer.objects.using(self._using)
        defaults = {"lease_until": UtcNow(LEASE)}

        def write() -> None:
            consumers.update_or_create(defaults, client_id=self.client_id, group_id=group)

        with self._joining:
            if group not in self.groups:
                retrying(write, self._using)
                self.groups = [*self.groups, group]

    def leave_deleted(self) -> bool:
        """Forget the groups that were deleted; return whether there was one."""
        with self._joining:
            rows = ConsumerGroup.objects.using(self._using).filter(pk__in=self.groups)
            there = retrying(list, self._using, rows.values_list("pk", flat=True))
            left = [group for group in self.groups if group in there]
            found, self.groups = len(left) < len(self.groups), left
        return found

    def renew(self) -> bool:
        """Extend the lease; return False if it had expired, and others may hold its deliveries."""
        asked = time.monotonic()
        consumers = Consumer.objects.using(self._using)
        if not consumers.renew(self.client_id, self.groups):
            return False
        self._lease_ends = asked + LEASE_SECONDS
        return True

    def deregister(self) -> None:
        self._lease_ends = 0.0
        mine = Consumer.objects.using(self._using).filter(client_id=self.client_id)
        # Retried, since the server may have closed this connection while it was silent.
        retrying(mine.delete, self._using, patience=1.0)

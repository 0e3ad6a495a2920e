"""Tells which clients a group has, and what each of them has in hand, and since when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring.live.limits import LISTED_AT_MOST
from streams.log.calls import Call, calls
from streams.models import Consumer, Delivery
from streams.observe.producers import who_is


@dataclass(frozen=True)
class LiveClient:
    """A consumer process of a group; one without a lease has died, or is about to leave."""

    client_id: str
    is_live: bool
    started_at: datetime | None
    heartbeat: timedelta | None  # until the lease ends
    calls: list[Call] = field(default_factory=list)

    @property
    def host(self) -> str:
        return who_is(self.client_id)[0]

    @property
    def pid(self) -> str:
        return who_is(self.client_id)[1]

    @property
    def in_hand(self) -> int:
        return sum(call.last_offset + 1 - call.progress for call in self.calls)


def clients(using: str, group: int, now: datetime, *, idle: bool) -> list[LiveClient]:
    """Return the clients of a group: those with the longest running call first.

    At most LISTED_AT_MOST clients, and as many claims, the oldest ones. Three statements; one if
    the group is known to be ``idle``.
    """
    rows = Consumer.objects.using(using).filter(group=group).order_by("-lease_until")
    found = {
        row.client_id: LiveClient(
            row.client_id, row.lease_until >= now, row.started_at, row.lease_until - now
        )
        for row in rows[:LISTED_AT_MOST]
    }
    held = Delivery.objects.using(using).held().filter(group=group).order_by("claimed_at")
    for call in () if idle else calls(held[:LISTED_AT_MOST], now, using):
        gone = LiveClient(call.client, False, None, None)  # the sweep will end what it holds
        found.setdefault(call.client, gone).calls.append(call)
    return sorted(found.values(), key=_longest, reverse=True)


def _longest(client: LiveClient) -> timedelta:
    return max((call.running for call in client.calls), default=timedelta(-1))

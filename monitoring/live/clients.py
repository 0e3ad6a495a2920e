"""Tells which clients a group has, and what each of them has in hand, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring.live.limits import LISTED_AT_MOST
from streams.models import Consumer, Delivery


@dataclass(frozen=True)
class Call:
    """Holds a claim that a client has in hand."""

    pk: int
    thread: str
    partition: int
    first_offset: int
    last_offset: int
    progress: int
    kind: str
    attempt: int
    running: timedelta | None  # since the handler was called; None: it waits for its turn
    claimed: timedelta
    deadline: datetime
    left: timedelta  # until the deadline; below zero it is overdue

    @property
    def is_overdue(self) -> bool:
        return self.left < timedelta(0)

    @property
    def is_slow(self) -> bool:
        """Tell whether more than half of the time for the call is gone."""
        return self.running is not None and self.running > self.left


@dataclass(frozen=True)
class Client:
    """Holds a consumer process of a group; one without a lease has died, or is about to leave."""

    client_id: str
    is_live: bool
    started_at: datetime | None
    heartbeat: timedelta | None  # until the lease ends
    calls: list[Call] = field(default_factory=list)

    @property
    def host(self) -> str:
        return self.client_id.split("@")[0]

    @property
    def pid(self) -> str:
        return self.client_id.partition("@")[2].partition("@")[0]

    @property
    def in_hand(self) -> int:
        return sum(call.last_offset + 1 - call.progress for call in self.calls)


def clients(using: str, group: int, now: datetime, *, idle: bool) -> list[Client]:
    """Return the clients of a group: those with the longest running call first.

    At most LISTED_AT_MOST clients, and as many claims, the oldest ones. Two statements; one if the
    group is known to be ``idle``.
    """
    rows = Consumer.objects.using(using).filter(group=group).order_by("-lease_until")
    found = {
        row.client_id: Client(
            row.client_id, row.lease_until >= now, row.started_at, row.lease_until - now
        )
        for row in rows[:LISTED_AT_MOST]
    }
    for client_id, call in () if idle else _calls(using, group, now):
        gone = Client(client_id, False, None, None)  # the sweep will end what it holds
        found.setdefault(client_id, gone).calls.append(call)
    return sorted(found.values(), key=_longest, reverse=True)


def _longest(client: Client) -> timedelta:
    return max((call.running or call.claimed for call in client.calls), default=timedelta(-1))


def _calls(using: str, group: int, now: datetime) -> Iterator[tuple[str, Call]]:
    held = Delivery.objects.using(using).held().filter(group=group).order_by("claimed_at")
    for row in held[:LISTED_AT_MOST]:
        started = row.started_at
        yield (
            row.client_id,
            Call(
                pk=row.pk,
                thread=row.thread,
                partition=row.partition_id,
                first_offset=row.first_offset,
                last_offset=row.last_offset,
                progress=row.progress,
                kind=row.kind,
                attempt=row.attempt,
                running=None if started is None else max(now - started, timedelta(0)),
                claimed=max(now - row.claimed_at, timedelta(0)),
                deadline=row.deadline,
                left=row.deadline - now,
            ),
        )

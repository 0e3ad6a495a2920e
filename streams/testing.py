"""Consumes, in tests of host projects, what a test has sent, on the connection of the test.

    class OrderTest(TestCase):
        def test_a_paid_order_is_mailed(self):
            pay(order)
            drain("mailer")
            self.assertEqual(len(mail.outbox), 1)

Handlers run in the calling thread, through the same code as in ``ems_consume``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models import F

from streams import body as bodies
from streams.api import Outgoing
from streams.conf import make_sure_enabled
from streams.consume.event_loop import with_event_loop
from streams.consume.limits import Limits, limits
from streams.consume.outcome.flood import flood
from streams.consume.registry import Registration, autodiscover, registrations
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.deliver.closing import Outcome
from streams.deliver.handling import Handling
from streams.deliver.turns import Turns
from streams.log.sequencer import sequence
from streams.models import (
    IMMEDIATE,
    CheckEndpoint,
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    Mode,
    Partition,
    PreparedRow,
    RetryMessage,
    Start,
)
from streams.process.broadcast.handling import BroadcastHandling
from streams.process.broadcast.position import Position, Positions
from streams.process.broadcast.reader import BroadcastReader
from streams.rules.names import text_of_key
from streams.sharding import alias_of, aliases
from streams.two_phase.checking import CheckResult, check_due

# The filters of sent().
FILTERS = ("body", "key", "tag", "headers", "deliver_at", "partition")


@dataclass
class DrainResult(Outcome):
    """What the handlers did: numbers of messages, and the ``errors`` raised, in order."""


def drain(group: str | None = None, *, using: str | None = None) -> DrainResult:
    """Deliver all that is due now, and what handlers send meanwhile, to ``group`` or all groups.

    A group reads all that the test has sent, whatever its ``start``, as if it had existed before.
    Retries are delivered when they are due: see :func:`advance`. Returns what the handlers did.
    Raises ValueError for an unknown group, and Disabled where EMS is off.
    """
    make_sure_enabled()
    autodiscover()
    chosen = list(registrations(groups=(group,) if group else ()))
    if group and not chosen:
        raise ValueError(f"no consumer is registered for the group {group!r}")
    places = [(one, using or alias_of(one.topic)) for one in chosen]
    work = partial(_drain, places)
    if any(registration.asynchronous for registration in chosen):
        return with_event_loop(work)
    return work()


def _drain(places: list[tuple[Registration, str]]) -> DrainResult:
    result = DrainResult()
    working = True
    while working:
        claimers = [(one, _claimer(one, alias), alias) for one, alias in places]
        for alias in dict.fromkeys(alias for _one, alias in places):
            sequence(alias)
        working = False
        for registration, claimer, alias in claimers:
            for outcome in _handle_all(registration, claimer, alias):
                result.add(outcome)
                working = True
    flood.say_withheld(at_once=True)
    return result


def advance(by: timedelta, *, using: str | None = None) -> None:
    """Let ``by`` pass: all that waits for a time becomes due earlier by it.

    It changes delayed messages, retries, leases, deadlines and checks of prepared messages in the
    rows, and not the clock; without ``using``, on all databases of ``EMS["SHARDS"]``.
    """
    for alias in [using] if using else aliases():
        _advance(by, alias)


def _advance(by: timedelta, alias: str) -> None:
    Message.objects.using(alias).filter(offset=None, due_at__gt=IMMEDIATE).update(
        due_at=F("due_at") - by
    )
    RetryMessage.objects.using(alias).update(due_at=F("due_at") - by)
    Delivery.objects.using(alias).open().update(deadline=F("deadline") - by)
    Consumer.objects.using(alias).update(lease_until=F("lease_until") - by)
    Cursor.objects.using(alias).exclude(blocked_until=None).update(
        blocked_until=F("blocked_until") - by
    )
    Cursor.objects.using(alias).exclude(blocked_at=None).update(blocked_at=F("blocked_at") - by)
    held = PreparedRow.objects.using(alias)
    held.exclude(next_at=None).update(next_at=F("next_at") - by)
    held.update(created_at=F("created_at") - by)
    CheckEndpoint.objects.using(alias).update(paused_until=F("paused_until") - by)


def checkback(biz: str | None = None, *, using: str | None = None) -> CheckResult:
    """Check the prepared messages that are due, of ``biz`` or all; returns what came of it.

    The first check is due a minute after ``prepare()``: see :func:`advance`. What a check commits
    is delivered by :func:`drain`.
    """
    found = CheckResult()
    for alias in [using] if using else aliases():
        found += check_due(alias, biz=biz)
    return found


def sent(topic: str, *, using: str | None = None, **filters: Any) -> list[Outgoing]:
    """Return the messages sent to ``topic``, in order, also those of the open transaction.

    ``filters`` are values of :class:`Outgoing`: ``sent("orders", key="7", tag="paid")``. There are
    ``body``, ``key``, ``tag``, ``headers``, ``deliver_at`` and ``partition``; raises TypeError for
    any other. The messages returned do not say their partition.
    """
    if unknown := filters.keys() - FILTERS:
        raise TypeError(f"sent() has no filter {', '.join(sorted(unknown))}: {', '.join(FILTERS)}")
    if "key" in filters:
        filters["key"] = text_of_key(filters["key"])
    if "body" in filters:
        filters["body"] = bodies.decode(*bodies.encode(filters["body"]))
    rows = Message.objects.using(using or alias_of(topic)).filter(partition__topic__name=topic)
    if (partition := filters.pop("partition", None)) is not None:
        rows = rows.filter(partition__number=partition)
    messages = [
        Outgoing(
            topic=topic,
            body=bodies.decode(bytes(row.body), row.body_type),
            key=row.key,
            tag=row.tag,
            headers=row.headers,
            deliver_at=row.due_at if row.due_at and row.due_at > IMMEDIATE else None,
        )
        for row in rows.order_by("id")
    ]
    return [m for m in messages if all(getattr(m, name) == v for name, v in filters.items())]


def _claimer(registration: Registration, alias: str) -> Claimer:
    group: ConsumerGroup = subscribe(registration, alias, Start.EARLIEST)
    thread = threading.current_thread().name
    return Claimer(group, "streams.testing", thread, alias, rank=registration.rank)


def _handle_all(registration: Registration, claimer: Claimer, alias: str) -> Iterator[Outcome]:
    current = limits(claimer.group, registration, alias)
    if registration.mode == Mode.BROADCAST:
        yield from _broadcast(claimer.group, registration, current, alias)
        return
    turns = Turns(claimer)
    batch = current.claimed_at_once(registration)
    while claimed := turns.claim(batch, current.consume_timeout):
        handling = Handling(claimed.delivery, registration, current, retry=claimed.retry)
        yield handling.run()
        if handling.away:
            raise handling.away


def _broadcast(
    group: ConsumerGroup, registration: Registration, current: Limits, alias: str
) -> Iterator[Outcome]:
    reader = BroadcastReader(group, registration.topic, RowPositions(group, alias), alias)
    reader.begin()
    while stretch := reader.take(current.batch):
        outcome = BroadcastHandling(stretch, registration, current, reader).run()
        if stretch.progress > stretch.first_offset:
            yield outcome
    if reader.missed:
        yield Outcome(missing=reader.missed)


class RowPositions(Positions):
    """The positions of the one client that ``streams.testing`` simulates, kept in cursors.

    The client reads all that the test sends, whatever the group's ``start`` is, as if it had begun
    before the test. In production a broadcast group has no cursors.
    """

    def __init__(self, group: ConsumerGroup, using: str) -> None:
        self._group = group
        self._cursors = Cursor.objects.using(using).filter(group=group.pk, replay=0)
        self._partitions = Partition.objects.using(using).filter(topic=group.topic_id)
        rows = self._cursors.values_list("partition__number", "next_offset")
        super().__init__({number: Position(offset) for number, offset in rows})

    def save(self) -> None:
        for id_, number in self._partitions.values_list("pk", "number"):
            if position := self.known.get(number):
                self._cursors.update_or_create(
                    group_id=self._group.pk,
                    partition_id=id_,
                    replay=0,
                    # No delivery covers earlier offsets, so for the audit the cursor starts here.
                    defaults={"next_offset": position.offset, "start_offset": position.offset},
                )

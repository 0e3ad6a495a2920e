"""Defines the consumers: three groups that each get every departure, and two of the encore.

All are atomic: what a handler writes and its acknowledgement are one transaction. Each has
one thread, because SQLite has one writer at a time; on a server, leave ``threads`` out.
"""

from __future__ import annotations

from collections.abc import Sequence

from emsproject.demo.departures import TOPIC
from emsproject.demo.encore import CALLS, GATE, GATES, STEPS, TOWER
from emsproject.demo.models import Handled
from streams import ReceivedMessage, consumer

LATE_MINUTES = 120
CENTS_PER_MILE = 12
# The US Virgin Islands: in the United States, but not in their customs territory.
ABROAD = {"STT"}


class RefundDeskBusy(Exception):
    """Nobody answers at the refund desk."""


class TowerBusy(Exception):
    """The tower has no time at present."""


class NoDeclaration(Exception):
    """The flight leaves the customs territory without a declaration."""


@consumer(TOPIC, group="board", batch=100, threads=1, atomic=True)
def board(messages: Sequence[ReceivedMessage]) -> None:
    """Show departures on the board: handle whole batches, of which none fails."""
    Handled.objects.bulk_create(
        _handled(message, "{code} to {dest} left at {departed}") for message in messages
    )


@consumer(TOPIC, group="billing", batch=50, threads=1, atomic=True)
def billing(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, BaseException]:
    """Bill fares: a late flight needs the refund desk, which answers at the third attempt.

    Only the messages that are returned have failed; the rest of the batch is done.
    """
    failed: dict[ReceivedMessage, BaseException] = {
        message: RefundDeskBusy(f"{message.key} was {message.body['delay']} minutes late")
        for message in messages
        if message.body["delay"] >= LATE_MINUTES and message.attempt < 3
    }
    Handled.objects.bulk_create(
        _handled(message, "{code}: {cents} cents a seat", cents=_fare(message))
        for message in messages
        if message not in failed
    )
    return failed


@consumer(TOPIC, group="customs", threads=1, atomic=True, max_retries=2)
def customs(message: ReceivedMessage) -> None:
    """Clear customs, one message at a time. Some can never be handled and become dead letters."""
    if message.body["dest"] in ABROAD:
        raise NoDeclaration(f"{message.key} to {message.body['dest']}")
    _handled(message, "{code} to {dest}: nothing to declare").save()


@consumer(GATES, group=TOWER, ordered=True, threads=1, atomic=True)
def clear(message: ReceivedMessage) -> None:
    """Clear the steps of a plane in their order; the tower is busy at the first push back.

    The steps after a failed one wait for it.
    """
    if message.body["step"] == STEPS[1] and message.offset < len(STEPS) and message.attempt == 1:
        raise TowerBusy(message.key)
    _handled(message, "{code} {step}").save()


@consumer(CALLS, group=GATE, threads=1, atomic=True)
def call(message: ReceivedMessage) -> None:
    """Call passengers to the gate when the delayed message comes."""
    _handled(message, "last call for {code}").save()


def _fare(message: ReceivedMessage) -> int:
    return int(message.body["distance"]) * CENTS_PER_MILE


def _handled(message: ReceivedMessage, note: str, **more: object) -> Handled:
    return Handled(
        group=message.group,
        partition=message.partition,
        offset=message.offset,
        attempt=message.attempt,
        flight=message.body["flight"],
        note=note.format(**message.body, **more),
    )

"""Reads the messages of a delivery for its handler, and tells missing bodies from unread ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from streams.api import ReceivedMessage
from streams.conf import CLAIM_BYTES, READ_BYTES
from streams.consume.outcome.failure import BodyUnread
from streams.consume.registry import Registration
from streams.errors import describe
from streams.log.bodies import StoredMessage, message_in_dead_letter, stored_messages
from streams.log.rewinds import epoch_of
from streams.logs import event
from streams.models import Delivery, Partition, RetryMessage

logger = logging.getLogger("streams.handling")


class ClaimOrigin(NamedTuple):
    """What the messages of a claim have in common: see ``OF_CLAIM``."""

    topic: str
    group: str
    partition: int
    attempt: int
    epoch: int
    delivery: int = 0


@dataclass(frozen=True)
class LeftOut:
    """The offsets of a delivery that nobody handles."""

    passed: set[int] = field(default_factory=set)  # without a tag that the group wants
    missing: set[int] = field(default_factory=set)  # gone for good
    unread: set[int] = field(default_factory=set)  # absent now, to be read once more
    # May not begin yet, or have no key, in a group with a rate for each key; and why.
    early: dict[int, Exception] = field(default_factory=dict)


NOTHING = LeftOut()


class Reading:
    """The messages of a delivery, as its handler gets them, and what is ``left_out`` of it.

    A purged message is missing. Any other absent message is read once more, as a retry, before it
    counts as missing: after a failover the new primary may not have caught up yet.
    """

    def __init__(
        self, delivery: Delivery, registration: Registration, retry: RetryMessage | None = None
    ) -> None:
        self.left_out = LeftOut()
        self._delivery = delivery
        self._registration = registration
        self._retry = retry

    def calls(self, size: int) -> Iterator[list[ReceivedMessage]]:
        """Yield the messages of one handler call after the other, ``size`` at most.

        The bodies of a claim may be larger than the memory: READ_BYTES of the small ones are read
        at once, and the large ones when their call comes.
        """
        delivery, retry = self._delivery, self._retry
        place = delivery.partition_id, delivery.first_offset, delivery.last_offset + 1
        share = READ_BYTES // len(delivery.offsets)
        # A dead letter has its own copy, which may be edited; the log may have none any more.
        letter = retry.dead_letter_id if retry else None
        rows = message_in_dead_letter(letter, delivery.using) if letter else []
        rows = rows or stored_messages(*place, delivery.using, at_most=share)
        if (
            delivery.parked and delivery.unseen
        ):  # their keys were not seen at the claim, and may be held
            rows = [row for row in rows if row.offset not in delivery.unseen]
        rows = self._without_absent(rows, set(delivery.offsets) - {row.offset for row in rows})
        rows, passed = chosen(rows, self._registration.tags)
        self.left_out.passed.update(passed)
        if delivery.parked and (parks := delivery.parks):
            rows = [row for row in rows if row.offset not in parks]
        partition = delivery.partition
        epoch = epoch_of(partition, delivery.first_offset, delivery.using)
        place_of = partition.number, delivery.attempt, epoch
        yield from in_calls(
            *(rows, size, self._registration, *place_of), load=self._load, delivery=delivery.pk
        )

    def _load(self, rows: list[StoredMessage]) -> list[StoredMessage]:
        """Return ``rows``, whose first one has no body, with the bodies of the first ones."""
        number, weight = 1, rows[0].weight
        for before, row in pairwise(rows):
            weight += row.weight
            if (
                row.offset != before.offset + 1
                or row.stored_body is not None
                or weight > READ_BYTES
            ):
                break
            number += 1
        first, end = rows[0].offset, rows[0].offset + number
        delivery = self._delivery
        full = stored_messages(delivery.partition_id, first, end, delivery.using)
        absent = set(range(first, end)) - {row.offset for row in full}
        return self._without_absent([*full, *rows[number:]], absent)

    def _without_absent(self, rows: list[StoredMessage], absent: set[int]) -> list[StoredMessage]:
        """Note what is ``absent``; return those of ``rows`` that are handed over all the same."""
        if absent:
            missing, unread = _judged(absent, self._delivery, self._retry)
            self.left_out.missing.update(missing)
            self.left_out.unread.update(unread)
            if self._delivery.group.ordered and unread:  # what comes after them waits for them
                return [row for row in rows if row.offset < min(unread)]
        return rows


def chosen(
    rows: Iterable[StoredMessage], tags: Collection[str]
) -> tuple[list[StoredMessage], set[int]]:
    """Split ``rows`` by the ``tags`` of a group: into those to hand over, and offsets to pass."""
    wanted: list[StoredMessage] = []
    passed: set[int] = set()
    for row in rows:
        if tags and row.tag not in tags:
            passed.add(row.offset)
        else:
            wanted.append(row)
    return wanted, passed


def in_calls(
    rows: list[StoredMessage],
    size: int,
    registration: Registration,
    partition: int,
    attempt: int,
    epoch: int,
    *,
    load: Callable[[list[StoredMessage]], list[StoredMessage]] = lambda rows: rows,
    delivery: int = 0,
) -> Iterator[list[ReceivedMessage]]:
    """Yield the messages of one handler call after the other, of ``size`` and CLAIM_BYTES at most.

    ``load`` gets the rows that are left when the first of them has no body. A row is let go when
    its call has been yielded.
    """
    place = registration.topic, registration.group, partition
    claimed = ClaimOrigin(*place, attempt, epoch, delivery)
    rows.reverse()
    while rows:
        messages: list[ReceivedMessage] = []
        weight = 0
        while rows and len(messages) < size:
            if messages and weight + rows[-1].weight > CLAIM_BYTES:
                break
            if rows[-1].stored_body is None:
                rows = load(rows[::-1])[::-1]
                continue
            weight += rows[-1].weight
            messages.append(_received(rows.pop(), claimed))
        if messages:
            yield messages


def _received(row: StoredMessage, claimed: ClaimOrigin) -> ReceivedMessage:
    message = ReceivedMessage.__new__(ReceivedMessage)
    message.__dict__.update(offset=row.offset, made_of=(row, claimed))
    return message


def stored(message: ReceivedMessage | StoredMessage) -> StoredMessage:
    """Return the row of a message that is handed over: what is passed on whole need not be made."""
    if isinstance(message, StoredMessage):
        return message
    row: StoredMessage = vars(message)["made_of"][0]
    return row


def delivery_of(message: ReceivedMessage) -> int:
    """Return the id of the delivery that hands the message over; 0 if it is a copy of that one."""
    made_of = vars(message).get("made_of")
    return made_of[1].delivery if made_of else 0


def _judged(
    absent: set[int], delivery: Delivery, retry: RetryMessage | None
) -> tuple[set[int], set[int]]:
    """Split the ``absent`` offsets into those that are missing and those to read once more."""
    partitions = Partition.objects.using(delivery.using).filter(pk=delivery.partition_id)
    first_kept = partitions.values_list("first_offset", flat=True).get()
    # Only a retry because of an absent body counts. A message that failed for another reason may
    # now be read from the new primary for the first time.
    again = _was_unread(delivery, retry)
    missing = {offset for offset in absent if offset < first_kept or again}
    unread = absent - missing
    if unread or again:
        logger.error(
            "The bodies of %d messages of %s are gone",
            *(len(absent), delivery),
            extra=event(
                "bodies.absent", count=len(absent), offset=min(absent), delivery=delivery.pk
            ),
        )
    return missing, unread


def _was_unread(delivery: Delivery, retry: RetryMessage | None) -> bool:
    unread = describe(BodyUnread())
    if retry or not delivery.group.ordered:
        return bool(retry and retry.last_error == unread)
    # If the message just before it was missing, too, both are in one gap, and one wait is enough
    # for all of a gap.
    place = delivery.group_id, delivery.partition_id
    first = delivery.first_offset
    deliveries = Delivery.objects.using(delivery.using).filter(pk__lt=delivery.pk)
    before = deliveries.covering(*place, first).order_by("-pk").first()
    gap = deliveries.covering(*place, first - 1).filter(missing__gt=0)
    return bool(before and before.error == unread) or gap.exists()

"""Reads the messages of a delivery for its handler, and tells missing bodies from unread ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.api import ReceivedMessage
from streams.consume.outcome.failure import BodyUnread
from streams.consume.registry import Registration
from streams.errors import describe
from streams.log.bodies import StoredMessage, message_in_dead_letter, stored_messages
from streams.logs import event
from streams.models import Delivery, Partition, RetryMessage

logger = logging.getLogger("streams.handling")


class Claimed(NamedTuple):
    """Holds what the messages of a claim have in common: see ``OF_CLAIM``."""

    topic: str
    group: str
    partition: int
    attempt: int


@dataclass(frozen=True)
class Reading:
    """Holds the messages of a delivery for its handler, and sets of the other offsets."""

    messages: list[ReceivedMessage]
    passed: set[int]  # without a tag that the group wants
    missing: set[int] = field(default_factory=set)  # gone for good
    unread: set[int] = field(default_factory=set)  # absent now, to be read once more


def read(delivery: Delivery, registration: Registration, retry: RetryMessage | None) -> Reading:
    """Read the messages of ``delivery``; ``retry`` is the row that it holds, if it is a retry.

    A purged message is missing. Any other absent message is read once more, as a retry, before it
    counts as missing: after a failover the new primary may not have caught up yet.
    """
    place = delivery.partition_id, delivery.first_offset, delivery.last_offset + 1
    rows = stored_messages(*place, delivery.using)
    if not rows and retry and retry.dead_letter_id:
        rows = message_in_dead_letter(retry.dead_letter_id, delivery.using)
    missing: set[int] = set()
    unread: set[int] = set()
    if absent := set(delivery.offsets) - {row.offset for row in rows}:
        missing, unread = _judged(absent, delivery, retry)
        if delivery.group.ordered and unread:  # what comes after the first of them waits for it
            rows = [row for row in rows if row.offset < min(unread)]
    messages, passed = chosen(rows, registration, delivery.partition.number, delivery.attempt)
    return Reading(messages, passed, missing, unread)


def chosen(
    rows: Iterable[StoredMessage], registration: Registration, partition: int, attempt: int
) -> tuple[list[ReceivedMessage], set[int]]:
    """Split ``rows`` by the tags of the group: return the messages to hand over and the offsets
    to pass.
    """
    messages: list[ReceivedMessage] = []
    passed: set[int] = set()
    claimed = Claimed(registration.topic, registration.group, partition, attempt)
    for row in rows:
        if registration.tags and row.tag not in registration.tags:
            passed.add(row.offset)
        else:
            message = ReceivedMessage.__new__(ReceivedMessage)
            message.__dict__.update(offset=row.offset, made_of=(row, claimed))
            messages.append(message)
    return messages, passed


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

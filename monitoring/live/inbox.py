"""Tells what waits in the inbox of each partition: how many messages are due, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from monitoring.live.limits import COUNT_AT_MOST
from streams.models import IMMEDIATE, Message, Partition, UtcNow
from streams.models.namespaces import own


@dataclass(frozen=True)
class PartitionState:
    """Holds a partition as it is now, with what is due in its inbox."""

    pk: int
    topic: int
    topic_name: str
    number: int
    first_offset: int
    next_offset: int
    sequenced_at: datetime | None
    # Due and without an offset. All partitions together are counted up to COUNT_AT_MOST.
    inbox: int
    inbox_age: timedelta | None  # of the message that has waited longest

    @property
    def kept(self) -> int:
        return self.next_offset - self.first_offset


def partition_states(
    using: str, now: datetime, rows: QuerySet[Partition] | None = None
) -> list[PartitionState]:
    """Return the state of each partition of this namespace, or of ``rows`` of it.

    Two looks into the index of the inbox for each partition, in two statements for all of them.
    """
    found = Partition.objects.using(using) if rows is None else rows
    inbox = Message.objects.using(using).inbox().filter(partition=OuterRef("pk"))
    # Both orders are the index's own: ids of immediate messages, times of delayed ones. They name
    # all of its columns: MySQL sorts what a correlated subquery fixes, and would read all.
    inbox = inbox.order_by("partition", "offset", "due_at", "pk")
    sent = inbox.filter(due_at=IMMEDIATE).values("created_at")[:1]
    delayed = inbox.filter(due_at__gt=IMMEDIATE, due_at__lte=UtcNow())
    states = list(
        found.filter(own("topic__name"))
        .order_by("topic", "number")
        .values_list(
            *("pk", "topic", "topic__name", "number"),
            *("first_offset", "next_offset", "last_sequenced_at"),
            Subquery(sent),
            Subquery(delayed.values("due_at")[:1]),
        )
    )
    since = {row[0]: min((at for at in row[7:] if at), default=None) for row in states}
    counts = _counts([pk for pk, at in since.items() if at], using)
    return [
        PartitionState(
            *(pk, topic, name, number, first, end, sequenced_at),
            counts[pk],
            None if (at := since[pk]) is None else max(now - at, timedelta(0)),
        )
        for pk, topic, name, number, first, end, sequenced_at, *_waiting in states
    ]


def _counts(partitions: Sequence[int], using: str) -> Counter[Any]:
    """Count what is due in these partitions, up to COUNT_AT_MOST in all."""
    if not partitions:
        return Counter()
    due = Message.objects.using(using).inbox().filter(due_at__lte=UtcNow())
    found = due.filter(partition__in=partitions).values_list("partition", flat=True)
    return Counter(found[:COUNT_AT_MOST])

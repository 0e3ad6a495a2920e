"""Tells what waits in the inbox of each partition: how many messages are due, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from monitoring.live.limits import COUNT_AT_MOST
from streams.models import Partition
from streams.models.namespaces import own
from streams.observe.inbox import due_counts, due_since


@dataclass(frozen=True)
class PartitionNow:
    """A partition as it is now, with what is due in its inbox."""

    pk: int
    topic: int
    topic_name: str
    topic_created_at: datetime
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
    using: str, now: datetime, rows: QuerySet[Partition] | None = None, *, inbox: bool = True
) -> list[PartitionNow]:
    """Return the state of each partition of this namespace, or of ``rows`` of it.

    Two statements, and two more while something is due: see ``due_since()``. One without the
    ``inbox``, which then looks empty.
    """
    found = Partition.objects.using(using) if rows is None else rows
    columns = ("pk", "topic", "topic__name", "topic__created_at", "number")
    offsets = ("first_offset", "next_offset", "last_sequenced_at")
    states = list(
        found.filter(own("topic__name")).order_by("topic", "number").values_list(*columns, *offsets)
    )
    since = due_since((row[0] for row in states if inbox), using)
    counts = due_counts(since, COUNT_AT_MOST, using)
    ages = {pk: max(now - at, timedelta(0)) for pk, at in since.items()}
    return [
        PartitionNow(
            *(pk, topic, name, created_at, number, first, end, sequenced_at),
            inbox=counts.get(pk, 0),
            inbox_age=ages.get(pk),
        )
        for pk, topic, name, created_at, number, first, end, sequenced_at in states
    ]

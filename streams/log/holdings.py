"""Tells what a topic holds: how many messages a group would read that begins at the earliest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F

from streams.durations import brief
from streams.log.rewinds import left_out
from streams.models import IMMEDIATE, Message, Partition, UtcNow

# Messages without an offset are counted up to this number: to count millions takes seconds.
INBOX_AT_MOST = 10_000


@dataclass(frozen=True)
class Holdings:
    """How many messages there are, at least if ``more``, and the age of the oldest."""

    messages: int
    more: bool = False
    age: timedelta | None = None  # None: the oldest is gone from the table

    def __str__(self) -> str:
        text = f"{self.messages:,} message{'' if self.messages == 1 else 's'}"
        if self.more:
            text = f"at least {text}"
        return text if self.age is None else f"{text}, the oldest sent {brief(self.age)} ago"


def holdings(topic_id: int, using: str) -> Holdings:
    """Return what the topic holds: its log, and the messages that are due in its inbox.

    Delayed messages are still to come, so they do not count.
    """
    partitions = list(Partition.objects.using(using).filter(topic=topic_id))
    rows = Message.objects.using(using)
    inbox = rows.inbox().filter(partition__in=partitions)
    due = inbox.filter(due_at__lte=UtcNow())
    waiting = due[: INBOX_AT_MOST + 1].count()
    count = sum(_kept(one, using) for one in partitions) + min(waiting, INBOX_AT_MOST)
    if not count:
        return Holdings(0)
    return Holdings(count, waiting > INBOX_AT_MOST, _age(partitions, topic_id, using))


def _kept(partition: Partition, using: str) -> int:
    first, end = partition.first_offset, partition.next_offset
    return end - first - left_out(partition, first, end, using)


def _age(partitions: list[Partition], topic_id: int, using: str) -> timedelta | None:
    rows = Message.objects.using(using).annotate(now=UtcNow()).values_list("now", "created_at")
    kept = rows.filter(partition__topic=topic_id, offset=F("partition__first_offset"))
    ages = [now - sent for now, sent in kept]
    if not ages:
        # One statement for each partition: the index then gives the oldest without a sort.
        inbox = rows.filter(offset=None, due_at=IMMEDIATE).order_by("pk")
        oldest = [inbox.filter(partition=one).first() for one in partitions]
        ages = [row[0] - row[1] for row in oldest if row]
    return max(ages, default=None)

"""Reads the log of a partition for clients that keep their own position: no lease, no record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams.database.retrying import retrying
from streams.errors import (
    OffsetOutOfRange,
    TopicDenied,
    UnknownPartition,
    UnknownTopic,
)
from streams.log.bodies import StoredMessage, bounded_in_bytes, stored_messages
from streams.log.ends import End
from streams.log.rewinds import note, readable
from streams.models import Partition


class Purged(Exception):
    """The messages from this offset on have been purged; ``first`` is the first that is kept."""

    def __init__(self, first: int) -> None:
        super().__init__(f"The log begins at offset {first}: what was before has been purged.")
        self.first = first


@dataclass(frozen=True)
class Stretch:
    """Messages of a partition, and its offsets: read on at ``next``."""

    partition_id: int
    messages: Sequence[StoredMessage]
    next: int
    first: int
    end: int


def read_log(topic: str, number: int, start: int, limit: int, using: str) -> Stretch:
    """Return at most ``limit`` messages from the offset ``start`` on, and at most CLAIM_BYTES.

    Raises UnknownTopic, UnknownPartition, TopicDenied, Purged, and OffsetOutOfRange beyond the end.
    """
    partition = _partition(topic, number, using)
    # What is read has been seen, and no other message may get its offsets.
    note({partition.pk: End(partition.next_offset, partition.epoch)}, using)
    if start > partition.next_offset:
        raise OffsetOutOfRange(
            f"The log ends at offset {partition.next_offset}, so nothing is at {start}."
        )
    if start < partition.first_offset:
        raise Purged(partition.first_offset)
    # What a log leaves out since it was rewound is passed in one read.
    left = readable(partition.pk, partition.epoch, start, partition.next_offset, using)
    start, end = left.start, min(left.start + limit, left.stop)
    if end > start:
        end = bounded_in_bytes(partition.pk, start, end, using)
    messages = stored_messages(partition.pk, start, end, using) if end > start else []
    if len(messages) < end - start:
        # A purge moves the first offset, commits, and then deletes.
        first = _partition(topic, number, using).first_offset
        if start < first:
            raise Purged(first)
    return Stretch(partition.pk, messages, end, partition.first_offset, partition.next_offset)


def _partition(topic: str, number: int, using: str) -> Partition:
    rows = Partition.objects.using(using).select_related("topic")
    found = retrying(rows.filter(topic__name=topic, number=number).first, using)
    if found is None:
        if retrying(rows.filter(topic__name=topic).exists, using):
            raise UnknownPartition(f"{topic} has no partition {number}.")
        raise UnknownTopic(f"There is no topic {topic!r}.")
    if not found.topic.readable:
        raise TopicDenied(f"The topic {topic!r} is {found.topic.access}: nobody may read it.")
    return found

"""Computes how far a partition may be purged: what is too old, and who needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from streams import runtime_settings
from streams.database.sql import retain as sql
from streams.database.sql.dialect import fetch
from streams.log.offsets import offset_at
from streams.log.rewinds import newest
from streams.models import ConsumerGroup, Cursor, Mode, Partition, Reader, Topic, UtcNow
from streams.retain.rule import RetentionRule, rule_of

CURSOR, REPLAY, DELIVERY, RETRY = "cursor", "replay", "delivery", "retry"
ARCHIVE, READER = "archive", "reader"
# Not of a group. A forced purge does not skip them.
UNSKIPPED = (ARCHIVE, READER)


@dataclass(frozen=True)
class Hold:
    """Who needs the messages from ``offset`` on: a group, the archive, or a reader by its name."""

    what: str
    offset: int
    group: int | None = None
    reader: str = ""

    def __str__(self) -> str:
        return {
            CURSOR: _("has not read from %d on"),
            REPLAY: _("replays from %d on"),
            DELIVERY: _("handles %d"),
            RETRY: _("will retry %d"),
            ARCHIVE: _("nothing is archived from %d on"),
            READER: _("has not read from %d on"),
        }[self.what] % self.offset

    def who(self, groups: Mapping[int, str]) -> str:
        """Return who it is; ``groups`` are names of groups by their ids."""
        if self.what == ARCHIVE:
            return _("the archive")
        return groups.get(self.group or 0, "") or self.reader


@dataclass(frozen=True)
class Kept:
    """What retention says of one partition: offsets below these are not kept.

    ``due`` is the limit by age and count. ``unread`` is the limit by "purge what is consumed": the
    end of the log, since the holds of the groups are the real limit. It needs a group that reads.
    """

    due: int
    unread: int

    @property
    def wanted(self) -> int:
        return max(self.due, self.unread)


@dataclass(frozen=True)
class PurgeFloor:
    """How far a partition may be purged, and what keeps the rest; the lowest hold first."""

    partition: Partition
    wanted: int
    holds: tuple[Hold, ...]

    @property
    def offset(self) -> int:
        lowest = min([self.wanted, *(hold.offset for hold in self.holds)])
        return max(self.partition.first_offset, lowest)

    @property
    def messages(self) -> int:
        """Return how many messages a purge would delete."""
        return self.offset - self.partition.first_offset


def purge_floor(partition: Partition, topic: Topic, kept: Kept, using: str) -> PurgeFloor:
    """Return the floor of a partition as it is now, by one statement: see HOLDERS.

    It holds as long as the partition is locked: claims and settlements only move forward, and what
    moves a cursor back takes this lock. If the topic is archived, all below the floor is archived.
    """
    needed = sorted(holds(partition, topic, using), key=lambda hold: hold.offset)
    # The last group may have been deleted since the limits were read.
    is_read = any(hold.what == CURSOR for hold in needed)
    wanted = min(kept.wanted if is_read else kept.due, partition.next_offset)
    return PurgeFloor(partition, wanted, tuple(hold for hold in needed if hold.offset < wanted))


def holds(partition: Partition, topic: Topic, using: str) -> Iterator[Hold]:
    """Yield what is needed of a partition, and by whom, in no order."""
    if topic.archive:
        yield Hold(ARCHIVE, partition.archived_offset)
    for reader in protecting(topic, using):
        yield Hold(READER, reader.position(partition.pk), reader=reader.label)
    id_, first = partition.pk, partition.first_offset
    statement = sql.HOLDERS[connections[using].vendor]
    rows = fetch(using, statement, [id_, first, id_, first, id_, topic.pk])
    for group, _cursor, replay, cursor, delivery, retry in rows:
        if cursor is not None:
            yield Hold(REPLAY if replay else CURSOR, cursor, group)
        if not replay:  # once for each group, not for each cursor
            if delivery is not None:
                yield Hold(DELIVERY, delivery, group)
            if retry is not None:
                yield Hold(RETRY, retry, group)


def protecting(topic: Topic, using: str) -> QuerySet[Reader]:
    """Return the streams of Spark for which a purge waits. Index: ems_reader_topic.

    They only move forward, except with another checkpoint: what is read here holds.
    """
    readers = Reader.objects.using(using).filter(topic=topic.pk, protect=True)
    return readers.filter(seen_at__gt=UtcNow(-protect_time(using)))


def protect_time(using: str) -> timedelta:
    """Return for how long a purge waits for a reader that is not seen any more."""
    return timedelta(days=runtime_settings.system("readerProtectDays", using))


def finished_below(cursor: Cursor, using: str) -> int:
    """Return the first offset that the group of this cursor has not finished."""
    partition = cursor.partition
    needed = holds(partition, partition.topic, using)
    mine = [hold.offset for hold in needed if hold.group == cursor.group_id]
    return min([partition.next_offset, *mine])


def kept_from(partition: Partition, topic: Topic, using: str) -> Kept:
    """Return the limits of retention. No lock is needed: messages stay old, and offsets grow."""
    rule = rule_of(topic, using)
    due = unread = partition.first_offset
    if rule.is_bounded and has_readers(topic, rule, using):
        if rule.count is not None:
            due = max(due, newest(partition, rule.count, using))
        if rule.age is not None:
            due = max(due, _older_than(rule.age, partition, using))
        if rule.consumed and _has_cluster_group(topic, using):
            unread = partition.next_offset
    return Kept(due, unread)


def has_readers(topic: Topic, rule: RetentionRule, using: str) -> bool:
    """Tell whether ``rule`` holds in the topic: a default needs a group, of any mode.

    Without one, the messages may be for a consumer that is deployed after their producer.
    """
    groups = ConsumerGroup.objects.using(using).filter(topic=topic.pk)
    return not rule.is_default or groups.exists()


def _has_cluster_group(topic: Topic, using: str) -> bool:
    """Tell whether the topic has a cluster group. Without one, no message counts as finished.

    Broadcast groups do not count, since only the disks of their clients have their positions.
    """
    groups = ConsumerGroup.objects.using(using)
    return groups.filter(topic=topic.pk, mode=Mode.CLUSTER).exists()


def _older_than(age: timedelta, partition: Partition, using: str) -> int:
    """Return the first offset that is not older than ``age``."""
    rows = Partition.objects.using(using).filter(pk=partition.pk).annotate(limit=UtcNow(-age))
    return offset_at(partition, rows.values_list("limit", flat=True).get())

"""How far the messages of a partition may be purged: what is too old, and who still needs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections
from django.utils.translation import gettext as _

from streams.database.sql import retain as sql
from streams.database.sql.dialect import fetch
from streams.log.offsets import offset_at
from streams.models import ConsumerGroup, Cursor, Mode, Partition, Topic, UtcNow

CURSOR, REPLAY, DELIVERY, RETRY, ARCHIVE = "cursor", "replay", "delivery", "retry", "archive"


@dataclass(frozen=True)
class Hold:
    """Somebody who needs the messages from ``offset`` on; the archive is no group."""

    what: str
    offset: int
    group: int | None = None

    def __str__(self) -> str:
        return {
            CURSOR: _("has not read from %d on"),
            REPLAY: _("replays from %d on"),
            DELIVERY: _("handles %d"),
            RETRY: _("will retry %d"),
            ARCHIVE: _("nothing is archived from %d on"),
        }[self.what] % self.offset


@dataclass(frozen=True)
class Kept:
    """What the retention of the topic says of one partition: offsets below are not kept.

    ``due`` is by age and count, ``unread`` by "what every group has finished": as far as there is
    a log, since the groups themselves are the limit.
    """

    due: int
    unread: int

    @property
    def wanted(self) -> int:
        return max(self.due, self.unread)


@dataclass(frozen=True)
class PurgeFloor:
    """How far a partition may be purged, and what keeps it from more; the lowest hold first."""

    partition: Partition
    wanted: int
    holds: tuple[Hold, ...]

    @property
    def offset(self) -> int:
        lowest = min([self.wanted, *(hold.offset for hold in self.holds)])
        return max(self.partition.first_offset, lowest)

    @property
    def messages(self) -> int:
        """How many messages a purge would take."""
        return self.offset - self.partition.first_offset


def purge_floor(partition: Partition, topic: Topic, kept: Kept, using: str) -> PurgeFloor:
    """The floor of a partition as it is now, in one statement: see HOLDERS.

    It stays true as long as the partition is locked: claims and settlements only move on, and what
    sets a cursor back takes this lock. Nothing of what is not archived is below it.
    """
    wanted = min(kept.wanted, partition.next_offset)
    needed = sorted(_holds(partition, topic, using), key=lambda hold: hold.offset)
    return PurgeFloor(partition, wanted, tuple(hold for hold in needed if hold.offset < wanted))


def _holds(partition: Partition, topic: Topic, using: str) -> Iterator[Hold]:
    if topic.archive:
        yield Hold(ARCHIVE, partition.archived_offset)
    id_, first = partition.pk, partition.first_offset
    statement = sql.HOLDERS[connections[using].vendor]
    rows = fetch(using, statement, [id_, first, id_, first, id_, topic.pk])
    for group, _cursor, replay, cursor, delivery, retry in rows:
        if cursor is not None:
            yield Hold(REPLAY if replay else CURSOR, cursor, group)
        if not replay:  # said once for each group
            if delivery is not None:
                yield Hold(DELIVERY, delivery, group)
            if retry is not None:
                yield Hold(RETRY, retry, group)


def finished_below(cursor: Cursor, using: str) -> int:
    """The first offset that the group of this cursor has not finished."""
    partition = cursor.partition
    holds = _holds(partition, partition.topic, using)
    mine = [hold.offset for hold in holds if hold.group == cursor.group_id]
    return min([partition.next_offset, *mine])


def kept_from(partition: Partition, topic: Topic, using: str) -> Kept:
    """What the retention says. Needs no lock: what is too old stays so, and offsets only grow."""
    due = partition.first_offset
    if topic.retention_count is not None:
        due = max(due, partition.next_offset - topic.retention_count)
    if topic.retention_seconds is not None:
        age = timedelta(seconds=topic.retention_seconds)
        due = max(due, _older_than(age, partition, using))
    unread = partition.first_offset
    if topic.retention_consumed and _has_readers(topic, using):
        unread = partition.next_offset
    return Kept(due, unread)


def _has_readers(topic: Topic, using: str) -> bool:
    """Without a group nothing is finished: its consumers may be deployed after the producer.

    Broadcast groups are not asked: how far their clients are is on the clients' disks.
    """
    groups = ConsumerGroup.objects.using(using)
    return groups.filter(topic=topic.pk, mode=Mode.CLUSTER).exists()


def _older_than(age: timedelta, partition: Partition, using: str) -> int:
    """The first offset that is not older."""
    rows = Partition.objects.using(using).filter(pk=partition.pk).annotate(limit=UtcNow(-age))
    return offset_at(partition, rows.values_list("limit", flat=True).get())

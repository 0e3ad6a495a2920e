"""Finds groups that nobody consumes any more, and that keep messages from being purged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, F, Max, OuterRef, QuerySet
from django.utils.translation import gettext as _

from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Mode,
    Partition,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.retain.purge_floor import PurgeFloor, kept_from, purge_floor
from streams.retain.rule import bounded

# A group counts as abandoned when it has had no consumer and no claim for this long.
LONG = timedelta(days=1)


@dataclass(frozen=True)
class Abandoned:
    """One abandoned group in one partition, and how many messages it keeps there."""

    group: ConsumerGroup
    partition: Partition
    messages: int
    absent: timedelta

    def __str__(self) -> str:
        return _(
            "%(group)s has had no consumer for %(days)d days, and keeps %(count)d messages of"
            " %(partition)s from being purged"
        ) % {
            "group": self.group,
            "days": self.absent.days,
            "count": self.messages,
            "partition": self.partition,
        }


def abandoned(using: str) -> Iterator[Abandoned]:
    """Yield the abandoned groups of topics with retention.

    If every group has a consumer, this costs one statement.
    """
    topics = Topic.objects.using(using).filter(bounded(using))
    groups = _without_consumer(using).filter(topic__in=topics).select_related("topic")
    for group in groups.order_by("topic__name", "name"):
        if _is_finished(group, using):
            continue
        partitions = Partition.objects.using(using).filter(topic=group.topic_id)
        for partition in partitions.order_by("number"):
            partition.topic = group.topic
            absent = _absence(group, partition, using)
            if absent >= LONG:
                wanted = kept_from(partition, group.topic, using)
                now = purge_floor(partition, group.topic, wanted, using)
                yield from _of(now, {group.pk: (group, absent)})


def abandoned_of(floors: Iterable[PurgeFloor], using: str) -> list[Abandoned]:
    """Return the abandoned groups that hold back a purge with these ``floors``."""
    idle = {group.pk: group for group in _without_consumer(using).select_related("topic")}
    found: list[Abandoned] = []
    for one in floors:
        groups = {hold.group for hold in one.holds} & set(idle)
        absent = {pk: (idle[pk], _absence(idle[pk], one.partition, using)) for pk in groups if pk}
        found += _of(one, {pk: pair for pk, pair in absent.items() if pair[1] >= LONG})
    return found


def _of(one: PurgeFloor, groups: dict[int, tuple[ConsumerGroup, timedelta]]) -> list[Abandoned]:
    lowest: dict[int, int] = {}
    for hold in one.holds:
        if hold.group in groups:
            lowest.setdefault(hold.group, hold.offset)
    return [
        Abandoned(group, one.partition, one.wanted - max(lowest[pk], one.offset), absent)
        for pk, (group, absent) in groups.items()
        if pk in lowest
    ]


def _without_consumer(using: str) -> QuerySet[ConsumerGroup]:
    live = Consumer.objects.using(using).live().filter(group=OuterRef("pk"))
    groups = ConsumerGroup.objects.using(using).filter(mode=Mode.CLUSTER)
    return groups.filter(~Exists(live))


def _is_finished(group: ConsumerGroup, using: str) -> bool:
    """Tell whether the group is at the end, holds nothing and waits for nothing: it needs nothing.

    Indexes, the first entries of the group: ems_cursor_place, ems_log_open, ems_retry_due.
    """
    cursors = Cursor.objects.using(using).filter(group=group.pk)
    open_ = Delivery.objects.using(using).open().filter(group=group.pk)
    retries = RetryMessage.objects.using(using).filter(group=group.pk)
    behind = cursors.filter(next_offset__lt=F("partition__next_offset"))
    return not (behind.exists() or open_.exists() or retries.exists())


def _absence(group: ConsumerGroup, partition: Partition, using: str) -> timedelta:
    """Return the time since the group last claimed in this partition, or else was created."""
    log = Delivery.objects.using(using).filter(group=group.pk, partition=partition.pk)
    # In two statements, which read one entry of ems_log_place each: with an ORDER BY, a server may
    # read the entries of other groups.
    last = log.aggregate(offset=Max("first_offset"))["offset"]
    newest = log.filter(first_offset=last).annotate(now=UtcNow()).order_by("-pk")
    row = newest.values_list("now", "claimed_at").first()
    if row is None:
        made = ConsumerGroup.objects.using(using).filter(pk=group.pk).annotate(now=UtcNow())
        row = made.values_list("now", "created_at").get()
    absent: timedelta = row[0] - row[1]
    return absent

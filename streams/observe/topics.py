"""Finds what is wrong with topics: damaged partitions, and messages that no group reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from django.db import connections
from django.db.models import Exists, OuterRef

from streams.consume.registry import registrations
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import fetch
from streams.log.holdings import Holdings, holdings
from streams.models import Partition, Reader, Topic
from streams.models.namespaces import own


@dataclass(frozen=True)
class Damaged:
    """A partition whose next_offset is not above its last offset."""

    name: str
    partition_id: int
    next_offset: int
    last_offset: int

    @property
    def repair(self) -> str:
        """Return the statement after which the sequencer goes on."""
        end = self.last_offset + 1
        place = f"id = {self.partition_id} AND next_offset < {end}"
        return f"UPDATE ems_partition SET next_offset = {end} WHERE {place}"  # noqa: S608 - shown


def damaged(using: str) -> list[Damaged]:
    """Return the partitions that cannot be sequenced: the next offsets are in the table already.

    That is so after a restore of some tables only.
    """
    last = dict(fetch(using, sql.LAST_OFFSETS[connections[using].vendor]))
    # Read after the offsets: a pass in between has only raised next_offset.
    partitions = Partition.objects.using(using).filter(own("topic__name"))
    partitions = partitions.order_by("topic__name", "number")
    rows = partitions.values_list("pk", "topic__name", "number", "next_offset")
    return [
        Damaged(f"{topic}/{number}", pk, next_offset, last[pk])
        for pk, topic, number, next_offset in rows
        if last.get(pk) is not None and last[pk] >= next_offset
    ]


@dataclass(frozen=True)
class Unread:
    """A topic that has messages and no group, and the topic that may have been meant."""

    topic: Topic
    holdings: Holdings
    meant: str


def unread(using: str) -> Iterator[Unread]:
    """Yield the topics with messages and no group: perhaps a name was misspelt in a send.

    Topics that are archived are left out, and those of known streams: Spark reads them.
    """
    names = {registration.topic for registration in registrations()}
    topics = Topic.objects.using(using).filter(groups=None, archive=False)
    readers = Reader.objects.using(using).filter(topic=OuterRef("pk"))
    for topic in topics.exclude(Exists(readers)).order_by("name"):
        held = holdings(topic.pk, using)
        if held.messages and topic.name not in names:
            yield Unread(topic, held, next(iter(get_close_matches(topic.name, names, 1)), ""))

"""Estimates what the messages of a topic take: their bodies, and their share of the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Q

from monitoring.live.inbox import PartitionNow
from streams.models import Message, Partition
from streams.observe.mysql_server import table_sizes

# In messages: what is read of a topic, and of all the others together.
SAMPLED, OF_OTHERS = 200, 100
# In partitions, those with most messages: the others are taken to be like them.
LOGS = 50
# In bytes: what a message takes on disk beside its body, in columns and indexes. Measured.
BESIDE = 176


class LogExtent(NamedTuple):
    """The offsets ``first`` … ``end`` - 1 of a partition."""

    pk: int
    first: int
    end: int

    @property
    def kept(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class Size:
    """An estimate in bytes; what is unknown is None.

    ``sampled`` is how many messages were read for it, and ``table`` what all messages of all
    topics take on disk, as the server says.
    """

    mean: float | None
    bodies: float | None
    on_disk: float | None
    sampled: int
    table: int | None


def size_of(using: str, topic: int, partitions: Iterable[PartitionNow]) -> Size:
    """Return the estimate, by messages that are spread evenly over the whole logs.

    The newest alone would be wrong by far where bodies grow over time. At most SAMPLED + OF_OTHERS
    messages are read, each by its offset.
    """
    mine = [LogExtent(one.pk, one.first_offset, one.next_offset) for one in partitions]
    rows = Partition._base_manager.using(using).exclude(topic=topic)
    others = [LogExtent(*row) for row in rows.values_list("pk", "first_offset", "next_offset")]
    sizes = _sizes(using, _spread(mine, SAMPLED) | _spread(others, OF_OTHERS))
    mean = _mean(mine, sizes)
    kept = sum(one.kept for one in mine)
    table = (table_sizes(using) or {}).get(Message._meta.db_table)
    if mean is None:
        return Size(None, None, None, 0, table)
    bodies = mean * kept
    of_others = _mean(others, sizes) or 0.0
    weight = bodies + BESIDE * kept
    whole = weight + sum(one.kept for one in others) * (of_others + BESIDE)
    on_disk = None if table is None else table * weight / whole
    return Size(mean, bodies, on_disk, sum(len(sizes.get(log.pk, ())) for log in mine), table)


def _spread(logs: Sequence[LogExtent], most: int) -> Q:
    """Return the condition for at most ``most`` messages of the largest logs."""
    chosen = sorted((log for log in logs if log.kept), key=lambda log: -log.kept)[:LOGS]
    places = Q()
    for log in chosen:
        count = min(log.kept, most // len(chosen))
        offsets = [log.end - 1 - n * (log.kept - 1) // max(1, count - 1) for n in range(count)]
        places |= Q(partition=log.pk, offset__in=offsets)
    return places


def _sizes(using: str, places: Q) -> Mapping[int, list[int]]:
    """Return the sizes of messages by partition. Index: (partition, offset)."""
    found: dict[int, list[int]] = {}
    if places:
        rows = Message.objects.using(using).filter(places).order_by()
        for pk, size in rows.values_list("partition", "size"):
            found.setdefault(pk, []).append(size)
    return found


def _mean(logs: Sequence[LogExtent], sizes: Mapping[int, list[int]]) -> float | None:
    """Return the mean size, in which each log counts by its messages."""
    known = [(log.kept, sizes[log.pk]) for log in logs if log.pk in sizes]
    kept = sum(count for count, _found in known)
    return sum(count * sum(found) / len(found) for count, found in known) / kept if kept else None

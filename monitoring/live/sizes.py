"""Estimates what the messages of a topic take: their bodies, and their share of the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Case, F, IntegerField, Q, When
from django.db.models.functions import Length

from monitoring.live.inbox import PartitionNow
from streams.models import Message, Partition
from streams.observe.mysql_server import table_sizes
from streams.rules.stored_body import LOGICAL

# In messages: what is read of a topic, and of all the others together.
SAMPLED, OF_OTHERS = 200, 100
# In partitions, those with most messages: the others are taken to be like them.
LOGS = 50
# In bytes: what a message takes on disk beside its body, in columns and indexes. Measured.
BESIDE = 176


# By partition.
Sizes = Mapping[int, list[int]]


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
    """An estimate in bytes; what is unknown is None. Bodies count as they were sent.

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
    sizes, stored = _sizes(using, _spread(mine, SAMPLED) | _spread(others, OF_OTHERS))
    mean = _mean(mine, sizes)
    kept = sum(one.kept for one in mine)
    table = (table_sizes(using) or {}).get(Message._meta.db_table)
    if mean is None:
        return Size(None, None, None, 0, table)
    of_others = _mean(others, stored) or 0.0
    weight = ((_mean(mine, stored) or 0.0) + BESIDE) * kept
    whole = weight + sum(one.kept for one in others) * (of_others + BESIDE)
    on_disk = None if table is None else table * weight / whole
    return Size(mean, mean * kept, on_disk, sum(len(sizes.get(log.pk, ())) for log in mine), table)


def _spread(logs: Sequence[LogExtent], most: int) -> Q:
    """Return the condition for at most ``most`` messages of the largest logs."""
    chosen = sorted((log for log in logs if log.kept), key=lambda log: -log.kept)[:LOGS]
    places = Q()
    for log in chosen:
        count = min(log.kept, most // len(chosen))
        offsets = [log.end - 1 - n * (log.kept - 1) // max(1, count - 1) for n in range(count)]
        places |= Q(partition=log.pk, offset__in=offsets)
    return places


def _sizes(using: str, places: Q) -> tuple[Sizes, Sizes]:
    """Return the sizes of bodies by partition: as they were sent, and as they are stored.

    Index: (partition, offset). Only a compressed body is read, for its length in bytes.
    """
    sizes: dict[int, list[int]] = {}
    stored: dict[int, list[int]] = {}
    if places:
        is_compressed = When(body_type__in=list(LOGICAL), then=Length("body"))
        on_disk = Case(is_compressed, default=F("size"), output_field=IntegerField())
        rows = Message.objects.using(using).filter(places).order_by()
        for pk, size, bytes_ in rows.values_list("partition", "size", on_disk):
            sizes.setdefault(pk, []).append(size)
            stored.setdefault(pk, []).append(bytes_)
    return sizes, stored


def _mean(logs: Sequence[LogExtent], sizes: Sizes) -> float | None:
    """Return the mean size, in which each log counts by its messages."""
    known = [(log.kept, sizes[log.pk]) for log in logs if log.pk in sizes]
    kept = sum(count for count, _found in known)
    return sum(count * sum(found) / len(found) for count, found in known) / kept if kept else None

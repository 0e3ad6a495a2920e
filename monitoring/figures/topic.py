"""Computes the figures of a topic: what comes in, what it holds, what waits in its inbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from monitoring.figures.site import Site
from monitoring.live.inbox import PartitionNow
from monitoring.sample.periods import total


@dataclass(frozen=True)
class TopicFigures:
    """What a row about a topic shows. What is unknown is None."""

    pk: int
    name: str
    partitions: int
    kept: int  # messages
    published: float | None  # messages a second, now
    in_range: int | None  # messages that came into the log in the time range, as far as sampled
    inbox: int
    inbox_age: timedelta | None
    groups: int
    published_series: Sequence[float | None]


def topic_figures(site: Site, starts: Mapping[int, int]) -> list[TopicFigures]:
    """Return the figures of the topics of ``site``, the busiest of the time range first.

    ``starts``: where the log of each partition was at the beginning of the range.
    """
    by_topic: dict[int, list[PartitionNow]] = {}
    for one in site.partitions:
        by_topic.setdefault(one.topic, []).append(one)
    readers: dict[int, int] = {}
    for lag in site.lags:
        readers[lag.group.topic_id] = readers.get(lag.group.topic_id, 0) + 1
    found = [
        TopicFigures(
            pk=pk,
            name=partitions[0].topic_name,
            partitions=len(partitions),
            kept=sum(one.kept for one in partitions),
            published=site.rates.published(pk),
            in_range=in_range(starts, partitions),
            inbox=sum(one.inbox for one in partitions),
            inbox_age=max((o.inbox_age for o in partitions if o.inbox_age), default=None),
            groups=readers.get(pk, 0),
            published_series=published_series(site, partitions),
        )
        for pk, partitions in by_topic.items()
    ]
    return sorted(found, key=lambda one: (-(one.in_range or 0), -(one.published or 0), one.name))


def in_range(starts: Mapping[int, int], partitions: Sequence[PartitionNow]) -> int | None:
    """Return how many messages came into these partitions since their first sample of the range."""
    grown = [one.next_offset - starts[one.pk] for one in partitions if one.pk in starts]
    return sum(grown) if grown else None


def published_series(site: Site, partitions: Sequence[PartitionNow]) -> Sequence[float | None]:
    """Return the messages a second that came into these partitions, period by period."""
    return total(site.log[one.pk].published for one in partitions if one.pk in site.log)

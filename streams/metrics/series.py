"""Counts the series that the metrics of the tables have."""

from __future__ import annotations

from collections import Counter

from streams.metrics.catalogue import DATABASE
from streams.models import ConsumerGroup, Cursor, Partition, Step, Topic
from streams.models.namespaces import own
from streams.models.prepared import UNFINISHED

# From here on the system checks warn.
MANY_SERIES = 1_000


def series_of_tables(using: str) -> int:
    """Return how many series a scrape of the tables has at most, by the labels of the metrics."""
    topics = Topic.objects.using(using).count()
    sets = {
        (): 1,
        ("topic",): topics,
        ("topic", "access"): topics,
        ("topic", "group"): ConsumerGroup.objects.using(using).count(),
        ("topic", "partition"): Partition.objects.using(using).filter(own("topic__name")).count(),
        ("topic", "group", "partition"): Cursor.objects.using(using)
        .filter(own("group__name"), replay=0)
        .count(),
        ("step",): Step.objects.using(using).count(),
        ("vendor", "version"): 1,
        ("state",): len(UNFINISHED),
    }
    metrics = Counter(metric.labels for metric in DATABASE.values())
    return sum(count * sets[labels] for labels, count in metrics.items())

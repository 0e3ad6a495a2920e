"""Makes the logs that are compared: messages in partitions of a topic, read by groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.lab.benchmarks.rows import copy, fill
from tests.lab.benchmarks.server import connect, execute

if TYPE_CHECKING:
    from streams.models import ConsumerGroup, Partition, Topic

BATCH = 100  # messages of a delivery
CLIENT = "bench@1@1"
TABLES = "ems_msg, ems_topic_group_log, ems_cursor, ems_partition, ems_group, ems_topic"

_numbers = count()


@dataclass(frozen=True)
class Place:
    """Holds a topic whose groups have read its first half, in deliveries of a hundred."""

    topic: Topic
    partition: Partition  # one of them, the one that is worked in
    groups: list[ConsumerGroup]


def make(*, messages: int, partitions: int = 1, groups: int = 1) -> Place:
    """Make a topic with so many messages in all, and so many groups; nothing else is left."""
    from streams import runtime_settings
    from streams.log import topics
    from streams.models import (
        Consumer,
        ConsumerGroup,
        Cursor,
        Delivery,
        Partition,
        State,
        Topic,
        UtcNow,
    )

    plain = connect()
    _empty(plain)
    topics.forget()
    runtime_settings.forget()
    # A new name: who sends caches what a topic has.
    topic = Topic.objects.create(name=f"bench-growth-{next(_numbers)}")
    first = topic.partitions.get()
    share = messages // partitions
    Partition.objects.bulk_create(
        [Partition(topic=topic, number=n, next_offset=share) for n in range(1, partitions)]
    )
    with_consumers = ConsumerGroup.objects.bulk_create(
        [ConsumerGroup(topic=topic, name=f"group-{n}") for n in range(groups)]
    )
    all_groups = list(ConsumerGroup.objects.filter(topic=topic).order_by("pk"))
    assert len(all_groups) == len(with_consumers)
    all_partitions = list(Partition.objects.filter(topic=topic).order_by("pk"))
    half = share // 2 // BATCH * BATCH
    Cursor.objects.bulk_create(
        [
            Cursor(group=group, partition=partition, next_offset=half)
            for group in all_groups
            for partition in all_partitions
        ]
    )
    Consumer.objects.bulk_create(
        [
            Consumer(client_id=CLIENT, group=group, lease_until=UtcNow(timedelta(hours=3)))
            for group in all_groups
        ]
    )
    fill(plain, first.pk, 0, share, size=50)
    if partitions > 1:
        where = f"JOIN ems_partition p ON p.topic_id = {topic.pk} AND p.id <> {first.pk}"
        copy(plain, "ems_msg", f"{where} WHERE r.partition_id = {first.pk}", partition_id="p.id")
    if half:
        pattern = Delivery.objects.create(
            group=all_groups[0],
            partition=first,
            first_offset=0,
            last_offset=BATCH - 1,
            progress=BATCH,
            client_id=CLIENT,
            thread="t",
            token="",
            state=State.DONE,
            deadline=UtcNow(),
        )
        _deliver(plain, pattern.pk, half)
        pattern.delete()
    execute(plain, f"ANALYZE TABLE {TABLES}")
    plain.close()
    return Place(topic, Partition.objects.get(pk=first.pk), all_groups)


def _empty(plain: Any) -> None:
    """Truncate the tables of EMS: millions of rows are deleted one by one otherwise."""
    from streams.database import remembered

    tables = execute(
        plain,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
        " AND table_name LIKE 'ems\\_%'",
    )
    execute(plain, "SET foreign_key_checks = 0")
    for (table,) in tables:
        execute(plain, f"TRUNCATE `{table}`")
        execute(plain, f"SELECT 1 FROM `{table}` LIMIT 1")  # reads the definition, which counts
    execute(plain, "SET foreign_key_checks = 1")
    remembered.forget()  # this process would take the new logs for a restored backup


def _deliver(plain: Any, pattern: int, half: int) -> None:
    """Copy a delivery: one for each hundred messages below ``half``, for each cursor."""
    of_half = f"m.`offset` < {half} AND m.`offset` % {BATCH} = 0"
    copy(
        plain,
        "ems_topic_group_log",
        "JOIN ems_cursor c JOIN ems_msg m ON m.partition_id = c.partition_id"
        f" WHERE r.id = {pattern} AND {of_half} ORDER BY m.`offset`, c.group_id",
        group_id="c.group_id",
        partition_id="c.partition_id",
        first_offset="m.`offset`",
        last_offset=f"m.`offset` + {BATCH - 1}",
        progress=f"m.`offset` + {BATCH}",
    )

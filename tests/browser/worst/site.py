"""Writes topics with the messages that the pages read, groups, and three hours of samples."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from monitoring.models import GroupSample, PartitionSample
from monitoring.sample.grain import floor, grain
from streams.models import Consumer, ConsumerGroup, Cursor, Message, Partition, Topic, UtcNow
from tests.browser.worst.figures import DEAD, GROUPS, MINUTE, TOPICS


def topic(name: str, partitions: int, end: int, _rate: float) -> list[Partition]:
    topic = Topic.objects.create(name=name)
    first = topic.partitions.get()
    new = [Partition(topic=topic, number=number) for number in range(1, partitions)]
    Partition.objects.bulk_create(new)
    made = [first, *topic.partitions.exclude(pk=first.pk).order_by("number")]
    for number, partition in enumerate(made):
        # The first one has a little more to do.
        share = (1.3 if number == 0 else 1 - 0.3 / max(1, partitions - 1)) / partitions
        partition.next_offset = int(end * (share if partitions > 1 else 1))
        partition.first_offset = partition.next_offset // 5
        partition.last_sequenced_at = UtcNow()
        partition.save()
        messages(partition, max(partition.first_offset, partition.next_offset - 120), 120, MINUTE)
    return made


def messages(partition: Partition, first: int, count: int, age: timedelta) -> None:
    Message.objects.bulk_create(
        Message(
            partition=partition,
            offset=offset,
            key=f"customer-{offset * 7919 % 4000}",
            tag="web" if offset % 3 else "app",
            body=b'{"order": %d, "amount": "49.90", "currency": "EUR"}' % offset,
            body_type="json",
            size=700,
            producer=producer(offset * 7919),
            created_at=UtcNow(-age - timedelta(milliseconds=40)),
            sequenced_at=UtcNow(-age),
        )
        for offset in range(first, first + count)
    )


def producer(n: int) -> str:
    """One of 20 threads of one of 300 processes on 60 hosts."""
    process = n % 300
    return f"10.0.4.{process % 60}@{2188 + process}@worker-{n // 300 % 20}"


def group(
    name: str,
    topic: str,
    behind: int,
    _rate: float,
    consumers: int,
    options: dict[str, Any],
    logs: dict[str, list[Partition]],
) -> ConsumerGroup:
    group = ConsumerGroup.objects.create(topic=logs[topic][0].topic, name=name, **options)
    whole = sum(one.next_offset for one in logs[topic])
    for partition in logs[topic]:
        own = int(behind * partition.next_offset / whole)
        at = partition.next_offset - own
        Cursor.objects.create(group=group, partition=partition, next_offset=at)
        if own > 1000:
            age = timedelta(hours=3, minutes=20) if behind > 50_000 else timedelta(minutes=22)
            messages(partition, at, 1, age)
    Consumer.objects.bulk_create(
        Consumer(
            client_id=f"10.0.4.{20 + n}@{3100 + n}@{name}",
            group=group,
            lease_until=UtcNow(timedelta(hours=6)),
            started_at=UtcNow(-timedelta(hours=31)),
        )
        for n in range(consumers)
    )
    return group


def samples(now: Any, logs: dict[str, list[Partition]], groups: dict[str, ConsumerGroup]) -> None:
    """A sample of each of the last 180 minutes, but for eight minutes of a deployment."""
    minutes = [floor(now, 1) - n * MINUTE for n in range(180, 0, -1)]
    before = None
    of_logs, of_groups = [], []
    for at in minutes:
        ago = (now - at) / MINUTE
        if 24 <= ago < 32:
            continue
        common = {"minute": at, "taken_at": at + timedelta(seconds=2), "grain": grain(at, before)}
        before = at
        for name, partitions in logs.items():
            gone = TOPICS[name][2] * 60 * _sum(ago)
            whole = sum(one.next_offset for one in partitions)
            of_logs += [
                PartitionSample(
                    **common,
                    partition=one,
                    first_offset=one.first_offset,
                    next_offset=int(one.next_offset * (1 - gone / whole)),
                    inbox=0,
                )
                for one in partitions
            ]
        of_groups += [
            GroupSample(**common, group=group, **_of_group(name, ago, logs))
            for name, group in groups.items()
        ]
    PartitionSample.objects.bulk_create(of_logs, 500)
    GroupSample.objects.bulk_create(of_groups, 500)


def _sum(ago: float) -> float:
    """Return the minutes of mean traffic in the last ``ago`` minutes, which goes up and down."""
    return ago + 0.25 * 17 * (math.cos(0) - math.cos(ago / 17))


def _of_group(name: str, ago: float, logs: dict[str, list[Partition]]) -> dict[str, Any]:
    topic, behind, rate, consumers, _options = GROUPS[name]
    came, went = TOPICS[topic][2] * 60 * _sum(ago), rate * 60 * ago
    end = sum(one.next_offset for one in logs[topic])
    then = max(0.0, behind - came + went) if behind > 1000 else behind * (1 + math.sin(ago / 3)) / 2
    dead = int(DEAD * max(0.0, 1 - ago / 150)) if name == "ledger" else 0
    waiting = int(220 + 90 * math.sin(ago / 9)) if name == "ledger" else 0
    return {
        "behind": int(then),
        "done": int(end - behind - went - (DEAD if name == "ledger" else 0)),
        "open": 0,
        "waiting": waiting,
        "dead": dead,
        "consumers": consumers,
        "age_seconds": max(0.0, 12_000 - 60 * ago) if behind > 50_000 else 2.0,
    }

"""Writes what is many: 300 topics, and 40 clients of 10 threads with 5,803 failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from monitoring.models import (
    Consumption,
    ConsumptionLevel,
    ErrorClass,
    Grain,
    Traffic,
    TrafficLevel,
)
from monitoring.sample.grain import floor
from streams.models import ConsumerGroup, Partition, Topic, UtcNow
from tests.browser.worst.figures import DEAD, MINUTE, TOPICS

ALL_TOPICS, NEW_TOPICS = 300, 5
CLIENTS, THREADS = 40, 10
DAY = timedelta(days=1)
LONG = "billing.invoices.exported-to-the-accounting-of-the-subsidiary-in-{}"
POD = "ledger-worker-7f9c6d5b8-{}.payments.svc.cluster-1.eu-central-1.internal"


def topics(now: Any) -> None:
    """Topics with little traffic; a few are new, and a few have long names."""
    made = []
    for number in range(len(TOPICS), ALL_TOPICS):
        place = number - len(TOPICS)
        name = LONG.format(f"region-{place}") if place % 10 == 3 else f"quiet.topic-{place}"
        is_new = place < NEW_TOPICS
        age = timedelta(minutes=20) if is_new else 100 * DAY
        topic = Topic.objects.create(name=name, created_at=UtcNow(-age))
        made.append((place, topic.partitions.get(), is_new))
    Topic.objects.filter(name__in=TOPICS).update(created_at=UtcNow(-400 * DAY))
    Partition.objects.filter(pk__in=[one.pk for _n, one, _new in made]).update(next_offset=9000)
    traffic, levels = [], []
    for place, partition, is_new in made:
        for n, ago in enumerate((8, 18, 70, 100)):
            if not is_new or ago < 20:
                count = 40 * (ALL_TOPICS - place) // (9 if (place + ago) % 7 == 0 else 7)
                traffic.append(counted(partition, n, floor(now, 1) - ago * MINUTE, count))
        levels += [
            summed(partition, Grain.DAY, floor(now, 1440) - ago * DAY, 5000 - 9 * place - ago)
            for ago in range(0 if is_new else 14)
        ]
    Traffic.objects.bulk_create(traffic, 500)
    TrafficLevel.objects.bulk_create(levels, 500)


def busy_topics(now: Any, logs: dict[str, list[Partition]]) -> None:
    """The hour before, hours and days of the busy topics: some have grown, one has fallen."""
    traffic, levels = [], []
    for place, (name, partitions) in enumerate(logs.items()):
        rate = TOPICS[name][2] * 60 / len(partitions) * (0.6 + 0.2 * place)
        for one in partitions:
            for ago in range(61, 121):
                at = floor(now, 1) - ago * MINUTE
                first = one.next_offset - int((ago + 60) * 2 * max(rate, 1)) - 10**7
                traffic.append(counted(one, first, at, int(rate)))
            for ago in range(50):
                start = floor(now, 60) - ago * timedelta(hours=1)
                levels.append(summed(one, Grain.HOUR, start, int(60 * rate)))
            for ago in range(60):
                start = floor(now, 1440) - ago * DAY
                levels.append(summed(one, Grain.DAY, start, int(1440 * rate) - 1000 * ago))
    Traffic.objects.bulk_create(traffic, 500)
    TrafficLevel.objects.bulk_create(levels, 500)


def counted(partition: Partition, first: int, at: Any, count: int) -> Traffic:
    return Traffic(
        partition=partition,
        minute=at,
        first_offset=first,
        end_offset=first + count,
        messages=count,
        bytes=count * 700,
        keys=1,
        delayed=0,
    )


def summed(partition: Partition, grain: int, start: Any, count: int) -> TrafficLevel:
    return TrafficLevel(
        partition=partition,
        grain=grain,
        start=start,
        messages=count,
        bytes=count * 700,
        delayed=0,
    )


def handled(now: Any, group: ConsumerGroup) -> None:
    """What 40 clients have done: a few are alive, one is slow, one fails most of the time."""
    clients = [f"10.0.4.{20 + n}@{3100 + n}@{group.name}" for n in range(4)]
    clients += [f"{POD.format(f'{n * 7919 % 99991:05x}')}@17@{n:04x}" for n in range(4, CLIENTS)]
    minutes = [floor(now, 1) - ago * MINUTE for ago in range(2, 60)]
    left = DEAD
    rows: list[Any] = []
    for n, client in enumerate(clients):
        for thread in range(THREADS):
            for at in minutes[thread % 6 :: 6]:
                failed = min(left, 40 if n == 7 else 2 if n % 3 == 0 else 0)
                left -= failed
                rows.append(Consumption(minute=at, **_done(group, client, thread, n, failed, 1)))
    Consumption.objects.bulk_create(rows, 500)
    sums: list[Any] = []
    for grain, last in ((Grain.HOUR, 4), (Grain.DAY, 20)):
        for ago in range(last):
            start = floor(now, grain) - ago * timedelta(minutes=grain)
            for n, client in enumerate(clients):
                # A deployment has given most of them new names.
                name = client if n < 4 or ago < 2 else client.replace("7f9c", f"{ago:04x}")
                sums += [
                    ConsumptionLevel(
                        grain=grain,
                        start=start,
                        **_done(group, name, thread, n, 3 if n % 5 == 0 else 0, grain // 60),
                    )
                    for thread in range(THREADS)
                ]
    ConsumptionLevel.objects.bulk_create(sums, 500)
    first = floor(now, 1) - 100 * MINUTE
    ErrorClass.objects.create(
        group=group, minute=first, error_class="KeyError", failed=2400, dead=0
    )


def _done(
    group: ConsumerGroup, client: str, thread: int, n: int, failed: int, times: int
) -> dict[str, Any]:
    count = times * (900 - 15 * n - 3 * thread)
    seconds = 0.004 * count * (9 if n == 5 else 1)
    return {
        "group": group,
        "client_id": client,
        "thread": f"{group.name}-{thread}",
        "deliveries": count // 20,
        "consumed": count,
        "failed": failed,
        "retried": failed,
        "dead": failed,
        "lost": 100 if n == 9 and thread == 3 else 0,
        "missing": 0,
        "passed": 0,
        "busy_seconds": seconds,
        "longest_seconds": 1380.0 if n == 5 and thread == 0 else 0.2 + thread / 9,
    }

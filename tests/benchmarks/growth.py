"""What a claim, a settlement, a pass and a send read, in a small log and in a large one; and in
one beside which many messages wait for next year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import connection

from streams.consume.outcome.settle import settle
from tests.benchmarks.consuming import fill
from tests.benchmarks.figures import Figure
from tests.benchmarks.server import connect, execute

if TYPE_CHECKING:
    from streams.models import ConsumerGroup, Partition

TOPIC = "bench-growth"
MINUTE = timedelta(minutes=1)
# What has just left the inbox is stepped over until the server has purged it: a few reads more or
# less. Growth would be thousands.
SLACK = 30
DELAYED = (
    "INSERT INTO ems_msg (partition_id, due_at, tag, body, body_type, size, producer, created_at)"
    " SELECT partition_id, UTC_TIMESTAMP(6) + INTERVAL 1 YEAR, '', 'x', 'text', 1, 'bench',"
    " UTC_TIMESTAMP(6) FROM ems_msg WHERE partition_id = {partition} LIMIT {count}"
)


def figures(*, quick: bool) -> Iterator[Figure]:
    small, large = 10_000, 100_000 if quick else 1_000_000
    from streams.models import ConsumerGroup, Cursor, Topic

    topic = Topic.objects.create(name=TOPIC)
    partition = topic.partitions.get()
    group = ConsumerGroup.objects.create(topic=topic, name="g")
    Cursor.objects.create(group=group, partition=partition)
    plain = connect()
    counts = []
    filled = 0
    for size in (small, large):
        fill(plain, partition.pk, filled, size - filled, size=50)
        _deliveries(group, partition, filled, size)
        filled = size
        execute(plain, "ANALYZE TABLE ems_msg, ems_topic_group_log, ems_cursor, ems_partition")
        counts.append(_count(group, size))
        partition.refresh_from_db()
        filled = partition.next_offset  # the counting has sent some
    execute(plain, DELAYED.format(partition=partition.pk, count=large))
    execute(plain, "ANALYZE TABLE ems_msg")
    counts.append(_count(group, large))
    plain.close()
    yield from _compared(counts[0], counts[1], f"{large:,} messages / {small:,}")
    yield from _compared(counts[1], counts[2], f"{large:,} due next year / none")


def _compared(before: dict[str, int], now: dict[str, int], what: str) -> Iterator[Figure]:
    for name, count in before.items():
        ratio = (count + SLACK) / (now[name] + SLACK)
        yield Figure(f"reads of {name}, {what}", ours=now[name], raw=count, ratio=ratio, target=0.9)


def _count(group: ConsumerGroup, size: int) -> dict[str, int]:
    from streams import send
    from streams.consume.claim import Claimer
    from streams.log.sequencer import sequence
    from streams.models import Consumer, Cursor, UtcNow
    from streams.process.due import Places, partitions, what_is_due
    from streams.steps.sweep import sweep

    Cursor.objects.filter(group=group).update(next_offset=size // 2)
    Consumer.objects.get_or_create(
        client_id="bench@1@1", group=group, defaults={"lease_until": UtcNow(timedelta(hours=1))}
    )
    claimer = Claimer(group, "bench@1@1", "t", "default")
    send(TOPIC, "x")
    sequence("default")  # whatever is read once only has been read
    counts = {"a send": reads(lambda: send(TOPIC, "x"))}
    for _ in range(99):
        send(TOPIC, "x")
    counts["a pass over 100 messages"] = reads(lambda: sequence("default"))
    counts["an idle pass"] = reads(lambda: sequence("default"))
    places = Places([group.pk], partitions("default"))
    counts["a look of a consumer"] = reads(lambda: what_is_due(places, "default"))
    taken = []
    counts["a claim of 100"] = reads(lambda: taken.append(claimer.claim(100, MINUTE)))
    counts["a look for retries"] = reads(lambda: claimer.claim_retry(MINUTE))
    counts["an idle sweep"] = reads(lambda: sweep("default"))
    (delivery,) = taken
    assert delivery
    counts["a settlement"] = reads(
        lambda: settle(delivery, delivery.last_offset + 1, max_retries=1)
    )
    return counts


def reads(work: Callable[[], object]) -> int:
    """Return the index entries and rows that this session has read for it (Handler_read_*)."""
    _session_reads()
    before = _session_reads()
    own = _session_reads() - before  # the look itself
    before = _session_reads()
    work()
    return _session_reads() - before - own


def _session_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler\\_read%%'", ())
        return sum(int(value) for _name, value in cursor.fetchall())


def _deliveries(group: ConsumerGroup, partition: Partition, first: int, end: int) -> None:
    """Write the log of the group: one ended delivery for each hundred messages."""
    from streams.models import Delivery, State, UtcNow

    Delivery.objects.bulk_create(
        [
            Delivery(
                group=group,
                partition=partition,
                first_offset=offset,
                last_offset=offset + 99,
                progress=offset + 100,
                client_id="bench@1@1",
                thread="t",
                token="",
                state=State.DONE,
                deadline=UtcNow(),
            )
            for offset in range(first, end, 100)
        ],
        batch_size=1000,
    )

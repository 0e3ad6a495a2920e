"""Rows enough for a planner to have a choice: a few thousand in each large table."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connection

from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Step,
    Topic,
)

TOPICS = 30
BUSY = 4  # of these topics have messages, the others are there
GROUPS = 3  # of each topic
LOG, INBOX, LATER, DUE = 600, 120, 100, 20  # messages of each busy partition
DELIVERIES, OPEN, EXPIRED = 250, 10, 3  # of each busy group
WAITING, RETRY_LATER, HELD = 20, 150, 10
DEAD = 40
CLIENTS = 5

LIVE, GONE = "10.0.0.1@7@live", "10.0.0.1@8@gone"


@dataclass
class Seed:
    """Holds the busy parts of what was written."""

    topics: list[Topic] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    groups: list[ConsumerGroup] = field(default_factory=list)

    @property
    def group(self) -> ConsumerGroup:
        """One that has something of everything; a copy, since a test may delete it."""
        return copy(self.groups[4])

    @property
    def partition(self) -> Partition:
        return self.partitions[1]


def seed() -> Seed:
    made = Seed()
    for number in range(TOPICS):
        topic = Topic.objects.create(name=f"topic-{number}")
        partition = topic.partitions.get()
        groups = [
            ConsumerGroup.objects.create(topic=topic, name=f"group-{name}")
            for name in range(GROUPS)
        ]
        if number < BUSY:
            made.topics.append(topic)
            made.partitions.append(partition)
            made.groups += groups
        for group in groups:
            offset = LOG // 2 if number < BUSY else 0
            Cursor.objects.create(group=group, partition=partition, next_offset=offset)
            Consumer.objects.bulk_create(_clients(group))
    for partition in made.partitions:
        Message.objects.bulk_create(_messages(partition))
        Partition.objects.filter(pk=partition.pk).update(next_offset=LOG)
        partition.refresh_from_db()
    for group in made.groups:
        partition = group.topic.partitions.get()
        Delivery.objects.bulk_create(_deliveries(group, partition))
        held = Delivery.objects.filter(group=group, kind=Kind.RETRY).order_by("id")
        RetryMessage.objects.bulk_create(_retries(group, partition, list(held)))
        DeadMessage.objects.bulk_create(_dead(group, partition))
    Step.objects.create(name="sweep", last_run_at=_now() - timedelta(seconds=7))
    analyze()
    return made


def analyze() -> None:
    """Let the optimizer know the tables. Commits what is open."""
    tables = [name for name in connection.introspection.table_names() if name.startswith("ems_")]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE " + ", ".join(f"`{name}`" for name in tables))
        cursor.fetchall()


def _now() -> datetime:
    return datetime.now(tz=UTC)


def _clients(group: ConsumerGroup) -> list[Consumer]:
    lease_until = _now() + timedelta(hours=1)
    live = [
        Consumer(client_id=f"{LIVE}{number or ''}", group=group, lease_until=lease_until)
        for number in range(CLIENTS)
    ]
    return [*live, Consumer(client_id=GONE, group=group, lease_until=_now() - timedelta(hours=1))]


def _messages(partition: Partition) -> list[Message]:
    def message(**values: object) -> Message:
        return Message(
            partition=partition,
            body=b"x" * 200,
            body_type="bytes",
            size=200,
            producer="10.0.0.1@1@main",
            created_at=_now(),
            **values,
        )

    hour = timedelta(hours=1)
    return [
        *(message(offset=offset, sequenced_at=_now()) for offset in range(LOG)),
        *(message() for _ in range(INBOX)),
        *(message(due_at=_now() + hour + timedelta(seconds=n)) for n in range(LATER)),
        *(message(due_at=_now() - hour + timedelta(seconds=n)) for n in range(DUE)),
        message(due_at=None),  # prepared
    ]


def _deliveries(group: ConsumerGroup, partition: Partition) -> list[Delivery]:
    def delivery(first: int, **values: object) -> Delivery:
        return Delivery(
            **{
                "group": group,
                "partition": partition,
                "first_offset": first,
                "last_offset": first,
                "progress": first,
                "client_id": LIVE,
                "thread": "t",
                "token": f"{first:032d}",
                "claimed_at": _now(),
                "deadline": _now() + timedelta(hours=1),
                **values,
            }
        )

    ended = {"state": State.DONE, "finished_at": _now(), "deadline": _now() - timedelta(hours=1)}
    return [
        *(delivery(n, progress=n + 1, **ended) for n in range(DELIVERIES)),
        *(delivery(DELIVERIES + n) for n in range(OPEN)),
        *(delivery(n, kind=Kind.RETRY, attempt=2) for n in range(HELD)),
        *(delivery(HELD + n, client_id=GONE, kind=Kind.NEW) for n in range(EXPIRED)),
        *(delivery(HELD + EXPIRED + n, deadline=_now()) for n in range(EXPIRED)),
    ]


def _retries(
    group: ConsumerGroup, partition: Partition, held: list[Delivery]
) -> list[RetryMessage]:
    def retry(offset: int, due_in: timedelta, **values: object) -> RetryMessage:
        return RetryMessage(
            group=group, partition=partition, offset=offset, due_at=_now() + due_in, **values
        )

    minute = timedelta(minutes=1)
    start = HELD
    return [
        *(retry(n, -minute, delivery=held[n], attempt=2) for n in range(HELD)),
        *(retry(start + n, -minute * (n + 1), attempt=2) for n in range(WAITING)),
        *(retry(start + WAITING + n, minute * (n + 60), attempt=3) for n in range(RETRY_LATER)),
    ]


def _dead(group: ConsumerGroup, partition: Partition) -> list[DeadMessage]:
    return [
        DeadMessage(
            topic=group.topic,
            group=group,
            partition=partition,
            offset=offset,
            message_id=offset,
            body=b"x",
            body_type="bytes",
            size=1,
            producer="p",
            sent_at=_now(),
            attempts=17,
            error_class="ValueError",
            error="no",
        )
        for offset in range(DEAD)
    ]

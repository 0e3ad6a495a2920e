"""Shows background work of all kinds as what it is in the log: tasks that wait, run and fail.

A door is a way by which work comes in: ``ems_work`` of an AppConfig names its topics. What doors
have in common is read from the log, the deliveries and the dead letters; a door may know more of
what runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps

from streams.consume.outcome.dead_letter import newest
from streams.log.calls import CLAIMS, calls
from streams.models import ConsumerGroup, Cursor, DeadMessage, Delivery, Message

# In rows: what is read of the tasks that wait next, and of the newest that failed, of a queue.
NEXT, LETTERS = 500, 10_000
# In lines of each table.
LINES = 20


@dataclass(frozen=True)
class RunningTask:
    """A task that runs now; ``usual`` is None where nothing tells how long it usually takes."""

    queue: str
    task: str
    since: datetime
    running: timedelta
    usual: timedelta | None
    worker: str
    attempt: int
    pk: int | None = None  # of its row, if its door has one
    alive: bool = True  # whether a delivery of it is open

    @property
    def is_slow(self) -> bool:
        if self.usual is None:
            return False
        return self.running >= max(timedelta(seconds=30), 10 * self.usual)


@dataclass(frozen=True)
class Door:
    """A way by which work comes in: queues are topics that begin with ``prefix``."""

    title: Any
    prefix: str
    group: str
    # Returns what runs, for (groups, now, using); without it the deliveries tell.
    running: Callable[[Sequence[ConsumerGroup], datetime, str], list[RunningTask]] | None = None
    # The model of its rows, which have a page in the admin.
    rows: Any = None

    def queue_of(self, topic: str) -> str:
        return topic.removeprefix(self.prefix)


@dataclass(frozen=True)
class FailedTasks:
    """How many tasks of one name failed with one class of error, and wait for somebody."""

    queue: str
    task: str
    error_class: str
    number: int
    last_at: datetime


def doors() -> list[Door]:
    """Return the doors of all apps."""
    found: list[Door] = []
    for config in apps.get_app_configs():
        if hasattr(config, "ems_work"):
            found += config.ems_work()
    return found


def running(door: Door, groups: Sequence[ConsumerGroup], now: datetime, using: str) -> Any:
    """Return what runs now, the longest first."""
    if not groups:
        return []
    found = door.running(groups, now, using) if door.running else _held(door, groups, now, using)
    return sorted(found, key=lambda one: one.running, reverse=True)


def _held(
    door: Door, groups: Sequence[ConsumerGroup], now: datetime, using: str
) -> list[RunningTask]:
    """Return the claims in hand: of each, the first message that is not settled."""
    topics = {group.pk: group.topic.name for group in groups}
    rows = Delivery.objects.using(using).held().filter(group__in=list(topics))
    held = calls(rows.order_by("claimed_at")[:CLAIMS], now, using)
    found = []
    for call in held[:LINES]:
        message = Message.objects.using(using).filter(
            partition=call.partition, offset=call.progress
        )
        found.append(
            RunningTask(
                queue=door.queue_of(topics[call.group]),
                task=message.values_list("tag", flat=True).first() or "–",
                since=now - call.running,
                running=call.running,
                usual=call.usual,
                worker=call.client,
                attempt=call.attempt,
            )
        )
    return found


def waiting_next(
    groups: Iterable[ConsumerGroup], using: str
) -> Mapping[tuple[str, str], tuple[int, int]]:
    """Count the tasks that come next in each topic: {(topic, task): (number, of how many)}.

    Of two million that wait nobody can count those of one name: no index has it.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for group in groups:
        tags: list[str] = []
        cursors = Cursor.objects.using(using).filter(group=group.pk, replay=0)
        for partition, offset in cursors.values_list("partition", "next_offset"):
            rows = Message.objects.using(using).filter(partition=partition, offset__gte=offset)
            left = NEXT - len(tags)
            if left > 0:
                tags += rows.order_by("offset").values_list("tag", flat=True)[:left]
        for tag, number in Counter(tags).items():
            found[group.topic.name, tag] = number, len(tags)
    return found


def failed(door: Door, groups: Iterable[ConsumerGroup], using: str) -> list[FailedTasks]:
    """Return what failed and waits for somebody, the most first: the newest LETTERS of a queue."""
    counts: Counter[tuple[str, str, str]] = Counter()
    last: dict[tuple[str, str, str], datetime] = {}
    for group in groups:
        ids = newest(group, LETTERS, using)
        for start in range(0, len(ids), NEXT):
            rows = DeadMessage.objects.using(using).filter(pk__in=ids[start : start + NEXT])
            for tag, error, at in rows.values_list("tag", "error_class", "died_at"):
                key = door.queue_of(group.topic.name), tag, error
                counts[key] += 1
                last[key] = max(at, last.get(key, at))
    return [FailedTasks(*key, number, last[key]) for key, number in counts.most_common()]

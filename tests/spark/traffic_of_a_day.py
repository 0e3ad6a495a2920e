"""Messages and deliveries of some hours, as EMS would have left them, and what they add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import mean, quantiles
from typing import Any

from django.apps import apps
from django.utils import timezone

from streams.models import (
    IMMEDIATE,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    State,
    Topic,
)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BATCH = 5
GROUPS = ("mail", "billing")


def make(
    messages: int = 60, topics: tuple[str, ...] = ("orders", "flights"), seconds: int = 7
) -> datetime:
    """Send one every ``seconds`` in each topic, done by two groups; return the first time."""
    begin = timezone.now().replace(second=0, microsecond=0) - timedelta(hours=3)
    deliveries: list[Delivery] = []
    for number, name in enumerate(topics):
        partition = Topic.objects.create(name=name).partitions.get()
        _sent(partition, messages, begin + number * SECOND, seconds)
        for group in GROUPS:
            deliveries += _consumed(partition, group, Random(f"{name} {group}"))  # noqa: S311
    # Ids rise with the claims.
    Delivery.objects.bulk_create(sorted(deliveries, key=lambda one: one.claimed_at))
    return begin


def _sent(partition: Partition, count: int, begin: datetime, seconds: int) -> None:
    random = Random(partition.topic.name)  # noqa: S311
    rows = []
    for offset in range(count):
        at = begin + offset * seconds * SECOND
        wait = timedelta(milliseconds=random.randrange(2000))
        is_delayed = offset % 11 == 0
        body = b"x" * random.randrange(200)
        rows.append(
            Message(
                partition=partition,
                offset=offset,
                key=random.choice([None, "a", "b", "c"]),
                body=body,
                body_type="bytes",
                size=len(body),
                producer="p",
                due_at=at if is_delayed else IMMEDIATE,
                created_at=at - wait,
                sequenced_at=at,
            )
        )
    Message.objects.bulk_create(rows)
    Partition.objects.filter(pk=partition.pk).update(
        next_offset=count, last_sequenced_at=rows[-1].sequenced_at
    )


def _consumed(partition: Partition, name: str, random: Random) -> Iterator[Delivery]:
    group = ConsumerGroup.objects.create(topic=partition.topic, name=name)
    log: dict[Any, Any] = {r.offset: r for r in Message.objects.filter(partition=partition)}
    Cursor.objects.create(group=group, partition=partition, next_offset=len(log))
    for first in range(0, len(log), BATCH):
        last = min(first + BATCH, len(log)) - 1
        claimed = log[last].sequenced_at + timedelta(milliseconds=random.randrange(500))
        failed = random.choice([0, 0, 1, 2])
        yield delivery(
            group,
            partition,
            (first, last),
            claimed,
            took=timedelta(milliseconds=random.randrange(1, 90_000)),
            thread=f"thread-{random.randrange(2)}",
            failed=failed,
            error="shop.Busy: not now" if failed else "",
        )
        for offset in range(first, first + failed):
            retried = claimed + 2 * MINUTE
            took = timedelta(milliseconds=5)
            fails = random.random() < 0.3
            yield delivery(
                group,
                partition,
                (offset, offset),
                retried,
                took=took,
                kind=Kind.RETRY,
                attempt=2,
                failed=int(fails),
                dead=int(fails),
                error="KeyError: 'x'" if fails else "",
            )
            if fails:
                add_letter(group, log[offset], retried + took)


def add_delivery(*about: Any, **named: Any) -> Delivery:
    """Save a ``delivery()``."""
    added = delivery(*about, **named)
    added.save()
    return added


def delivery(
    group: ConsumerGroup,
    partition: Partition,
    offsets: tuple[int, int],
    claimed: datetime,
    took: timedelta | None,
    **named: Any,
) -> Delivery:
    """``took=None``: it is open."""
    first, last = offsets
    is_open = took is None
    done = State.RETRY if named.get("failed") else State.DONE
    given = {"thread": "thread-0", "progress": first if is_open else last + 1, **named}
    return Delivery(
        group=group,
        partition=partition,
        first_offset=first,
        last_offset=last,
        client_id="10.0.0.1@7@abc",
        token="t",
        state=State.START if is_open else done,
        claimed_at=claimed,
        deadline=claimed + MINUTE,
        finished_at=None if took is None else claimed + took,
        **given,
    )


def add_letter(group: ConsumerGroup, message: Any, died: datetime) -> DeadMessage:
    return DeadMessage.objects.create(
        topic=group.topic,
        group=group,
        partition=message.partition,
        offset=message.offset,
        message_id=message.pk,
        body=message.body,
        body_type=message.body_type,
        size=message.size,
        producer="p",
        sent_at=message.created_at,
        attempts=2,
        error_class="builtins.KeyError",
        error="'x'",
        died_at=died,
    )


# -- counted by hand ------------------------------------------------------------------------------


def minute_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(second=0, microsecond=0)


def traffic_by_hand() -> dict[Any, tuple[int, ...]]:
    """(partition, minute): first and end offset, messages, bytes, keys, delayed."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for row in Message.objects.exclude(offset=None).order_by("offset"):
        assert row.sequenced_at
        found[row.partition_id, minute_of(row.sequenced_at)].append(row)
    return {
        place: (
            min(row.offset for row in rows),
            max(row.offset for row in rows) + 1,
            len(rows),
            sum(row.size for row in rows),
            len({row.key for row in rows} - {None}),
            sum(row.due_at != IMMEDIATE for row in rows),
        )
        for place, rows in found.items()
    }


def consumption_by_hand() -> dict[Any, tuple[float, ...]]:
    """(group, minute, thread): deliveries, consumed, failed, retried, dead, busy seconds."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for row in Delivery.objects.exclude(finished_at=None).exclude(state=State.SKIPPED):
        assert row.finished_at
        found[row.group_id, minute_of(row.finished_at), row.thread].append(row)
    return {
        place: (
            len(rows),
            sum(row.progress - row.first_offset - row.failed for row in rows),
            sum(row.failed for row in rows),
            sum(row.kind == Kind.RETRY for row in rows),
            sum(row.dead for row in rows),
            round(
                sum((row.finished_at - row.claimed_at).total_seconds() for row in rows),
                3,
            ),
        )
        for place, rows in found.items()
    }


def errors_by_hand() -> dict[Any, tuple[int, int]]:
    """(group, minute, class): failed and dead."""
    failed: Counter[Any] = Counter()
    dead: Counter[Any] = Counter()
    for row in Delivery.objects.filter(failed__gt=0):
        assert row.finished_at
        name = row.error.partition(":")[0]
        failed[row.group_id, minute_of(row.finished_at), name] += row.failed
    for letter in DeadMessage.objects.all():
        name = letter.error_class.rpartition(".")[2]
        dead[letter.group_id, minute_of(letter.died_at), name] += 1
    return {place: (failed[place], dead[place]) for place in failed.keys() | dead.keys()}


def latencies_by_hand() -> dict[Any, float]:
    """(group, minute, leg, name): messages, mean, median and longest, in seconds."""
    log = {(row.partition_id, row.offset): row for row in Message.objects.all()}
    found: dict[Any, list[float]] = defaultdict(list)
    for delivery in Delivery.objects.filter(kind=Kind.NEW).exclude(finished_at=None):
        assert delivery.finished_at
        for offset in range(delivery.first_offset, delivery.progress):
            row = log.get((delivery.partition_id, offset))
            if row is None:
                continue
            assert row.sequenced_at
            legs = {
                "claimed": delivery.claimed_at - row.sequenced_at,
                "done": delivery.finished_at - delivery.claimed_at,
            }
            if row.due_at == IMMEDIATE:
                legs["sequenced"] = row.sequenced_at - row.created_at
                legs["total"] = delivery.finished_at - row.created_at
            for leg, took in legs.items():
                place = (delivery.group_id, minute_of(delivery.finished_at), leg)
                found[place].append(took.total_seconds())
    figures: dict[str, Any] = {"messages": len, "mean": mean, "p50": _median, "worst": max}
    return {
        (*place, name): figure(rows)
        for place, rows in found.items()
        for name, figure in figures.items()
    }


def _median(values: list[float]) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=2, method="inclusive")[0]


# -- what is in the roll-up tables ----------------------------------------------------------------


def everything() -> dict[str, list[Any]]:
    """Return all rows of all roll-up tables, without columns that say when they were written."""
    models = [
        model
        for model in apps.get_app_config("ems_monitoring").get_models()
        if model.__name__ in ("Traffic", "Consumption", "Latency", "ErrorClass", "HotKey")
    ]
    found: dict[str, list[Any]] = {}
    for model in models:
        rows = [
            tuple(value for name, value in sorted(row.items()) if name != "id")
            for row in model._default_manager.values()
        ]
        found[model.__name__] = sorted(rows)
    return found

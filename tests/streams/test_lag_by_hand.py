"""The lag of groups, and how they stand, are what a second computation in plain Python says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from streams.database.clock import database_now
from streams.log.counting import count_each
from streams.log.lag import Lag, countable, lags
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Mode,
    Partition,
    RetryMessage,
    State,
    Topic,
)

pytestmark = pytest.mark.django_db

SEEDS = range(12)
MINUTE = timedelta(minutes=1)
MANY = 10_000
# What the two computations have in common; durations, which are until now, are compared apart.
NUMBERS = (
    *("behind", "open", "waiting", "dead", "consumers", "blocked", "blocked_at"),
    *("end", "reset_at", "called_at", "done"),
)
AGES = ("age", "dead_age")


def history(random: Random, now: datetime) -> None:
    """Make two topics, each with groups of all kinds, as any history may have left them."""

    def ago(most: int = 300) -> datetime:
        return now - random.randrange(1, most) * MINUTE

    for name in ("orders", "flights"):
        topic = Topic.objects.create(name=name)
        for number in range(1, random.randrange(1, 4)):
            Partition.objects.create(topic=topic, number=number)
        for partition in topic.partitions.all():
            end = random.choice([0, 5, 30])
            first = random.choice([0, 0, end // 3])
            Partition.objects.filter(pk=partition.pk).update(first_offset=first, next_offset=end)
            times = sorted(ago() for _ in range(first, end))
            Message.objects.bulk_create(
                message(partition, offset, at)
                for offset, at in zip(range(first, end), times, strict=True)
                if random.random() < 0.97  # or it is lost
            )
        for kind in ("plain", "ordered", "broadcast", "new"):
            mode = Mode.BROADCAST if kind == "broadcast" else Mode.CLUSTER
            of = ConsumerGroup.objects.create(
                topic=topic, name=kind, mode=mode, ordered=kind == "ordered"
            )
            for number in range(random.choice([0, 1, 2])):
                lease = now + random.choice([-1, 60]) * MINUTE
                Consumer.objects.create(client_id=f"{kind}-{number}", group=of, lease_until=lease)
            for partition in topic.partitions.all() if kind != "new" else ():
                _left(of, partition, random, ago)


def message(partition: Partition, offset: int, at: datetime) -> Message:
    return Message(
        partition=partition, offset=offset, body=b"", size=0, producer="p", sequenced_at=at
    )


def _left(
    of: ConsumerGroup, partition: Partition, random: Random, ago: Callable[[], datetime]
) -> None:
    end, first = partition.next_offset, partition.first_offset

    def span() -> tuple[int, int, int]:
        low = random.randrange(max(1, end))
        last = min(low + random.randrange(6), max(low, end - 1))
        return low, random.randint(low, last), last

    open_ones = []
    for _ in range(random.randrange(5)):
        low, progress, last = span()
        given = {"first_offset": low, "progress": progress, "last_offset": last}
        state = random.choice([State.START, State.START, State.DONE])
        open_ones.append(
            Delivery.objects.create(
                group=of,
                partition=partition,
                kind=random.choice(Kind.values),
                state=state,
                finished_at=None if state == State.START else ago(),
                token=random.choice(["t", "t", ""]),
                claimed_at=ago(),
                started_at=random.choice([None, ago()]),
                deadline=ago(),
                **given,
            )
        )
    if random.random() < 0.9:
        Cursor.objects.create(
            group=of,
            partition=partition,
            next_offset=random.randint(first, end),
            attempt=random.choice([1, 1, 3]),
            blocked_at=random.choice([None, ago()]),
            reset_at=random.choice([None, ago()]),
            open_delivery=random.choice([None, *(one.pk for one in open_ones)]),
        )
    if random.random() < 0.3:
        Cursor.objects.create(group=of, partition=partition, replay=1, next_offset=0)
    for offset in random.sample(range(max(1, end)), random.choice([0, 0, 1])):
        RetryMessage.objects.create(
            group=of,
            partition=partition,
            offset=offset,
            due_at=ago(),
            delivery=random.choice([None, None, *open_ones]),
        )
    for offset in random.sample(range(max(1, end)), random.choice([0, 0, 1])):
        DeadMessage.objects.create(
            topic=of.topic,
            group=of,
            partition=partition,
            offset=offset,
            message_id=offset,
            body=b"",
            size=0,
            producer="p",
            sent_at=ago(),
            attempts=1,
            died_at=ago(),
            redriven_at=random.choice([None, None, ago()]),
        )


def by_hand(of: ConsumerGroup, now: datetime) -> dict[str, Any]:
    """Compute the lag of a group from all of its rows."""
    claims = [one for one in Delivery.objects.filter(group=of) if one.state == State.START]
    held = [one for one in claims if one.token]
    back = [one for one in claims if not one.token and one.kind != Kind.REPLAY]
    retries = list(RetryMessage.objects.filter(group=of))
    letters = [one for one in DeadMessage.objects.filter(group=of) if one.redriven_at is None]
    cursors = [one for one in Cursor.objects.filter(group=of) if one.replay == 0]
    if of.mode == Mode.BROADCAST:
        cursors = []
    unclaimed = [one.partition.next_offset - one.next_offset for one in cursors]
    behind = unclaimed + [one.last_offset + 1 - one.progress for one in back]
    blocked = [one for one in cursors if of.ordered and is_blocked(one)]
    found: dict[str, Any] = {
        "behind": sum(behind) if behind else None,
        "unclaimed": sum(unclaimed) if unclaimed else None,
        "given_back": any(not one.token for one in claims),
        "open": sum(one.last_offset + 1 - one.progress for one in held),
        "waiting": sum(one.delivery_id is None for one in retries),
        "dead": len(letters),
        "consumers": sum(one.lease_until >= now for one in Consumer.objects.filter(group=of)),
        "blocked": len(blocked),
        "blocked_at": earliest(one.blocked_at for one in blocked),
        "end": sum(one.partition.next_offset for one in cursors) if cursors else None,
        "reset_at": max((one.reset_at for one in cursors if one.reset_at), default=None),
        "called_at": earliest(one.started_at or one.claimed_at for one in held),
    }
    others = found["open"] + found["waiting"] + found["dead"]
    is_known = found["end"] is not None and found["behind"] is not None
    found["done"] = found["end"] - found["behind"] - others if is_known else None
    first_letter = min(letters, key=lambda one: one.pk, default=None)
    found["dead_age"] = first_letter and now - first_letter.died_at
    found["age"] = age(of, cursors, [one for one in claims if one.kind != Kind.REPLAY], now)
    return found


def age(
    of: ConsumerGroup, cursors: list[Cursor], claims: list[Delivery], now: datetime
) -> timedelta | None:
    """Return the age of the oldest unfinished message, of the partition with the oldest one."""
    ages = []
    with_cursor = {one.partition_id: one for one in cursors}
    for partition in Partition.objects.all():
        first = partition.first_offset
        offsets = [one.progress for one in claims if one.partition_id == partition.pk]
        if cursor := with_cursor.get(partition.pk):
            retries = RetryMessage.objects.filter(group=of, partition=partition)
            offsets += retries.values_list("offset", flat=True)
        offsets = [offset for offset in offsets if offset >= first]
        if cursor:
            offsets.append(cursor.next_offset)
        oldest = Message.objects.filter(partition=partition, offset=min(offsets, default=-1))
        ages += [now - one.sequenced_at for one in oldest if one.sequenced_at]
    return max(ages, default=None)


def is_blocked(cursor: Cursor) -> bool:
    if cursor.open_delivery is not None:
        return cursor.attempt > 1
    has_failed = cursor.attempt > 1 or cursor.blocked_at is not None
    return has_failed and cursor.next_offset < cursor.partition.next_offset


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in times if at is not None), default=None)


def compare(found: Lag, expected: dict[str, Any]) -> None:
    assert {name: getattr(found, name) for name in NUMBERS} == {
        name: expected[name] for name in NUMBERS
    }
    for name in AGES:
        read, computed = getattr(found, name), expected[name]
        assert (read is None) == (computed is None), name
        assert read is None or abs(read - computed) < MINUTE / 2, name


@pytest.mark.every_database
@pytest.mark.parametrize("seed", SEEDS)
def test_the_lag_of_a_random_history_is_what_its_rows_add_up_to(seed: int) -> None:
    now = database_now("default")
    history(Random(seed), now)  # noqa: S311
    groups = list(ConsumerGroup.objects.select_related("topic"))
    counts = count_each(countable(groups, "default"), MANY, "default")
    for found in (lags(groups, "default"), lags(groups, "default", counts)):
        assert [one.group for one in found] == groups
        for one in found:
            compare(one, by_hand(one.group, now))

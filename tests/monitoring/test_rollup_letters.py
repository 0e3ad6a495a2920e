"""Letters that were written late are counted where the message failed last, by few reads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import prefetch_related_objects
from django.utils import timezone

from sparkjobs.database import fetch
from sparkjobs.rollup import letters
from sparkjobs.rollup.again import stretches
from sparkjobs.rollup.letters import Minute, counted_letters, minutes_of_letters
from streams.models import ConsumerGroup, DeadMessage, Delivery, Kind, State, Topic

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def group() -> ConsumerGroup:
    topic = Topic.objects.create(name="orders")
    prefetch_related_objects([topic], "partitions")
    return ConsumerGroup.objects.create(topic=topic, name="mail")


def delivery(group: ConsumerGroup, first: int, last: int, ended: datetime, **named: Any) -> Any:
    given = {"state": State.RETRY, "kind": Kind.NEW, **named}
    return Delivery(
        group=group,
        partition=group.topic.partitions.all()[0],
        first_offset=first,
        last_offset=last,
        progress=last + 1,
        client_id="c",
        thread="t",
        token="t",
        claimed_at=ended - MINUTE,
        deadline=ended,
        finished_at=None if given["state"] == State.START else ended,
        **given,
    )


def letter(group: ConsumerGroup, offset: int, died: datetime) -> DeadMessage:
    return DeadMessage(
        topic=group.topic,
        group=group,
        partition=group.topic.partitions.all()[0],
        offset=offset,
        message_id=offset,
        body=b"",
        body_type="bytes",
        size=0,
        producer="p",
        sent_at=died,
        attempts=1,
        error_class="E",
        error="e",
        died_at=died,
    )


@pytest.mark.parametrize("part", [1, 2, letters.PART])
def test_the_last_ended_delivery_that_covers_a_letter_counts_it(
    connection: Any, group: ConsumerGroup, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "PART", part)
    now = timezone.now()
    day_ago = (now - timedelta(days=1)).replace(second=0, microsecond=0)
    at = [day_ago + number * MINUTE for number in range(20)]
    Delivery.objects.bulk_create(
        [
            delivery(group, 0, 999, at[0]),
            delivery(group, 5, 5, at[1], kind=Kind.RETRY),
            delivery(group, 5, 5, at[9], state=State.START, kind=Kind.REPLAY),
            delivery(group, 1000, 1999, at[2]),
            delivery(group, 1005, 1005, at[3], kind=Kind.RETRY),
            delivery(group, 900, 1100, at[4]),  # after a reset
            delivery(group, 5000, 5009, at[5]),
            delivery(group, 7000, 7009, now, state=State.DONE),
        ]
    )
    dead = [5, 999, 1005, 5009, 7001, 9000]
    DeadMessage.objects.bulk_create([letter(group, offset, now) for offset in dead])
    DeadMessage.objects.bulk_create([letter(group, 1500, now - timedelta(hours=1))])
    found = minutes_of_letters(connection, now - MINUTE, now - MINUTE)
    assert found == {(group.pk, at[1]), (group.pk, at[4]), (group.pk, at[5])}


def reads(connection: Any, work: Any) -> int:
    """Return how many entries of indexes and rows the server reads for ``work``."""

    def so_far() -> int:
        rows = fetch(connection, "SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in rows)

    before = so_far()
    work()
    return so_far() - before


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_what_letters_read_does_not_grow_with_the_deliveries(
    connection: Any, group: ConsumerGroup
) -> None:
    """Each delivery near a letter is read once, however many letters are near it."""
    now = timezone.now()

    def work() -> set[Minute]:
        return minutes_of_letters(connection, now - MINUTE, now - MINUTE)

    def fill(first: int, end: int) -> None:
        places = range(first, end, 10)
        old = now - timedelta(days=1)
        Delivery.objects.bulk_create([delivery(group, n, n + 9, old) for n in places], 1000)

    fill(0, 20_000)
    DeadMessage.objects.bulk_create([letter(group, n, now) for n in range(0, 20_000, 2000)])
    few = reads(connection, work)
    fill(20_000, 60_000)
    assert reads(connection, work) <= few + 10
    DeadMessage.objects.bulk_create([letter(group, n, now) for n in range(0, 20_000, 20)])
    assert len(work()) == 1
    # Of the 2,000 deliveries beside a letter each is read once, with its index entry; and the
    # letters are sorted. One letter after the other would read 100 deliveries for each: 200,000.
    assert reads(connection, work) < 10_000


@pytest.mark.mysql
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_5000_letters_over_200000_deliveries_take_some_seconds(
    connection: Any, group: ConsumerGroup
) -> None:
    now = timezone.now()
    old = now - timedelta(days=1)
    for start in range(0, 200_000, 5000):
        Delivery.objects.bulk_create(
            [delivery(group, n, n, old) for n in range(start, start + 5000)], 1000
        )
    DeadMessage.objects.bulk_create([letter(group, n, now) for n in range(0, 200_000, 40)], 1000)
    started = timezone.now()
    assert len(minutes_of_letters(connection, now - MINUTE, now - MINUTE)) == 1
    assert timezone.now() - started < timedelta(seconds=10)


def test_letters_of_a_time_are_counted_by_class_and_minute(
    connection: Any, group: ConsumerGroup
) -> None:
    noon = timezone.now().replace(hour=12, minute=0, second=0, microsecond=0)
    times = (-1, 0, 59.5, 60, 119.999999, 120)
    dead = [letter(group, n, noon + timedelta(seconds=at)) for n, at in enumerate(times)]
    dead[3].error_class = "shop.Busy"
    DeadMessage.objects.bulk_create(dead)
    found = counted_letters(connection, noon, noon + 2 * MINUTE)
    assert sorted(found, key=str) == [
        (group.pk, "E", noon, 2),
        (group.pk, "E", noon + MINUTE, 1),
        (group.pk, "shop.Busy", noon + MINUTE, 1),
    ]
    assert counted_letters(connection, noon + 3 * MINUTE, noon + 4 * MINUTE) == []


@pytest.mark.any_database
def test_the_deliveries_of_many_letters_in_a_row_are_not_held_at_once() -> None:
    found = list(letters._near_each_other(range(50_000)))
    assert [len(part) for part in found] == [20_000, 20_000, 10_000]


@pytest.mark.mysql
def test_a_letter_that_has_died_again_lets_no_others_be_read(
    connection: Any, group: ConsumerGroup
) -> None:
    """Its id is the lowest of all, and its death the last."""
    now = timezone.now()
    old = now - timedelta(days=1)
    DeadMessage.objects.bulk_create([letter(group, n, old) for n in range(5000)], 1000)
    first = DeadMessage.objects.order_by("pk")[0]
    DeadMessage.objects.filter(pk=first.pk).update(died_at=now)

    def work() -> None:
        assert len(counted_letters(connection, now - MINUTE, now + MINUTE)) == 1

    assert reads(connection, work) < 50


def test_minutes_are_counted_again_together_if_they_are_near_each_other(
    group: ConsumerGroup,
) -> None:
    noon = timezone.now().replace(minute=0, second=0, microsecond=0)
    of_letters = {(group.pk, noon + n * MINUTE) for n in (0, 1, 30, 200, 3000)}
    found = stretches([], of_letters, timedelta(days=1))
    assert [(part.since, part.until) for part in found] == [
        (noon, noon + 31 * MINUTE),
        (noon + 200 * MINUTE, noon + 201 * MINUTE),
        (noon + 3000 * MINUTE, noon + 3001 * MINUTE),
    ]
    whole = {(group.pk, noon + n * MINUTE) for n in range(0, 3000, 10)}
    found = stretches([], whole, timedelta(days=1))
    assert sum(len(part.minutes) for part in found) == len(whole)
    assert all(part.until - part.since <= timedelta(days=1) + MINUTE for part in found)

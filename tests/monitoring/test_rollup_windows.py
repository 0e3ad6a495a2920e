"""What a window reads: its own deliveries, the hours that have grown, the offsets it needs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import HotKey, OpenDelivery, Position, Run, Traffic
from sparkjobs.rollup.claims import ids_between
from sparkjobs.rollup.hours import due, hours, spans
from sparkjobs.rollup.offsets import RANGES, joined, left
from sparkjobs.rollup.owed import owed
from sparkjobs.rollup.remembered import look, remember
from streams.models import ConsumerGroup, Delivery, Partition, State, Topic

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def group() -> ConsumerGroup:
    topic = Topic.objects.create(name="orders")
    return ConsumerGroup.objects.create(topic=topic, name="mail")


def delivery(group: ConsumerGroup, claimed: datetime, took: timedelta | None) -> Delivery:
    return Delivery(
        group=group,
        partition=group.topic.partitions.get(),
        first_offset=0,
        last_offset=0,
        progress=0,
        client_id="c",
        thread="t",
        token="t",
        state=State.START if took is None else State.DONE,
        claimed_at=claimed,
        deadline=claimed,
        finished_at=None if took is None else claimed + took,
    )


def test_a_window_of_the_past_reads_its_own_deliveries_only(
    connection: Any, group: ConsumerGroup
) -> None:
    """To catch up takes as much as to have kept up."""
    begin = timezone.now() - timedelta(days=4)
    Delivery.objects.bulk_create(
        [delivery(group, begin + n * 10 * MINUTE, MINUTE) for n in range(4 * 144)]
    )
    windows = [
        (begin + n * timedelta(days=1), begin + (n + 1) * timedelta(days=1)) for n in (0, 1, 2, 3)
    ]
    read = 0
    for since, until in windows:
        first, end = ids_between(connection, since, until)
        read += Delivery.objects.filter(pk__gte=first, pk__lt=end).count()
        inside = Delivery.objects.filter(finished_at__gte=since, finished_at__lt=until)
        assert inside.exclude(pk__gte=first, pk__lt=end).count() == 0
    assert read < 1.05 * Delivery.objects.count()


def test_where_nothing_was_claimed_there_is_nothing_to_read(connection: Any) -> None:
    now = timezone.now()
    first, end = ids_between(connection, now - HOUR, now)
    assert first == end


def test_open_deliveries_are_remembered_until_they_are_counted(
    connection: Any, group: ConsumerGroup
) -> None:
    now = timezone.now()
    claimed = now - 5 * HOUR
    Delivery.objects.bulk_create([delivery(group, claimed, None) for _ in range(4)])
    gone, short, long, stays = Delivery.objects.order_by("pk")
    remember(connection, look(connection, claimed), now - MINUTE, now)
    assert OpenDelivery.objects.filter(finished_at=None).count() == 4
    gone.delete()
    for one, took in ((short, MINUTE), (long, 2 * HOUR)):
        Delivery.objects.filter(pk=one.pk).update(state=State.DONE, finished_at=claimed + took)
    # A window that does not hold their ends leaves them to the next run.
    remember(connection, look(connection, claimed), now, now + MINUTE)
    seen = look(connection, claimed)
    late = [one for one in seen.remembered if one.ended_late(now)]
    assert {one.id for one in late} == {short.pk, long.pk}
    remember(connection, seen, now, now, late=late)
    kept = dict(OpenDelivery.objects.values_list("delivery_id", "finished_at"))
    assert kept == {long.pk: claimed + 2 * HOUR, stays.pk: None}
    again = look(connection, claimed)
    assert not [one for one in again.remembered if one.ended_late(now)]
    assert again.long_ends(claimed, now) == [long.pk]
    # In a window: those that end in it are counted with it.
    Delivery.objects.filter(pk=stays.pk).update(state=State.DONE, finished_at=now)
    remember(connection, look(connection, claimed), now, now + MINUTE)
    assert OpenDelivery.objects.get(pk=stays.pk).finished_at == now


def test_a_look_does_not_grow_with_the_long_deliveries_of_long_ago(
    connection: Any, group: ConsumerGroup
) -> None:
    now = timezone.now()
    Delivery.objects.bulk_create(
        [
            *(delivery(group, now - 9 * HOUR, 2 * HOUR) for _ in range(3)),
            delivery(group, now - 3 * HOUR, 2 * HOUR),
        ]
    )
    long = [(one.pk, one.finished_at) for one in Delivery.objects.order_by("pk") if one.finished_at]
    remember(connection, look(connection, now), now - 9 * HOUR, now, long)
    assert OpenDelivery.objects.count() == 4
    seen = look(connection, now - 2 * HOUR)
    assert [one.id for one in seen.remembered] == [long[3][0]]
    # They are read with the ids of the next window, and are there.
    remember(connection, seen, now - 2 * HOUR, now, long)
    assert OpenDelivery.objects.count() == 4
    # They are purged.
    Delivery.objects.filter(pk__lt=long[2][0]).delete()
    remember(connection, look(connection, now), now, now)
    kept = OpenDelivery.objects.order_by("pk").values_list("pk", flat=True)
    assert list(kept) == [long[2][0], long[3][0]]


def test_offsets_are_read_as_exact_ranges() -> None:
    assert joined([(7, 17)]) == [(7, 17)]
    assert joined([(20, 30), (7, 17)]) == [(7, 30)]
    assert joined([(0, 10), (50_000, 50_010)]) == [(0, 10), (50_000, 50_010)]
    far = joined([(n * 10_000, n * 10_000 + 10) for n in range(100)])
    assert len(far) <= RANGES


def test_what_was_read_already_is_left_out() -> None:
    assert left([(0, 10)], []) == [(0, 10)]
    assert left([(0, 10)], [(0, 10)]) == []
    assert left([(0, 10)], [(3, 5), (8, 20)]) == [(0, 3), (5, 8)]
    assert left([(0, 10), (20, 30)], [(5, 25)]) == [(0, 5), (25, 30)]
    assert left([(5, 6)], [(0, 5), (6, 9)]) == [(5, 6)]


def counted(partition: Partition, minute: datetime, first: int, end: int, keys: int = 3) -> None:
    Traffic.objects.create(
        partition=partition,
        minute=minute,
        first_offset=first,
        end_offset=end,
        messages=end - first,
        bytes=0,
        keys=keys,
        delayed=0,
    )


def ranked(topic: Topic, hour: datetime, total: int) -> None:
    HotKey.objects.filter(topic=topic, hour=hour).delete()
    HotKey.objects.create(
        topic=topic, hour=hour, place=1, key="k", messages=1, bytes=1, share=0.1, total=total
    )


def test_an_hour_is_read_five_times_at_most_however_often_one_looks(connection: Any) -> None:
    topic = Topic.objects.create(name="orders")
    partition = topic.partitions.get()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    read = end = 0
    for minute in range(61):
        if minute < 60:
            counted(partition, hour + minute * MINUTE, end, end + 6000)
            end += 6000
        current = hour if minute < 60 else hour + HOUR
        for ((_first, last),) in spans(due(hours(connection, hour), current)).values():
            read += last
            ranked(topic, hour, last)
    assert HotKey.objects.get().total == end == 360_000
    assert read < 6 * end


def test_hot_keys_of_an_hour_that_is_over_are_owed_though_nothing_else_is(connection: Any) -> None:
    topic = Topic.objects.create(name="orders")
    partition = topic.partitions.get()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - HOUR
    counted(partition, hour, 0, 10_000)
    ranked(topic, hour, 9000)
    Position.objects.create(partition=partition, open_offset=0, next_offset=0)
    for job in ("consumption", "backlog"):
        Run.objects.create(job=job, state="done", until=timezone.now())
    assert owed(connection) is not None
    ranked(topic, hour, 10_000)
    assert owed(connection) is None
    # Messages are lost from the log: a roll-up after the hour's end has ranked what there is.
    ranked(topic, hour, 9990)
    now = timezone.now()
    for began, is_owed in ((hour, True), (now, False)):
        Run.objects.create(job="backlog", state="done", until=now, resume_at=hour, started_at=began)
        assert (owed(connection) is not None) is is_owed


def test_an_hour_is_counted_while_it_is_small_and_once_more_when_it_is_over(
    connection: Any,
) -> None:
    topic = Topic.objects.create(name="orders")
    partition = topic.partitions.get()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)

    def is_due(current: datetime = hour) -> Any:
        return spans(due(hours(connection, hour - HOUR), current))

    counted(partition, hour, 0, 100)
    assert is_due() == {partition.pk: [(0, 100)]}
    ranked(topic, hour, 100)
    assert is_due() == {}
    counted(partition, hour + MINUTE, 100, 101)
    assert is_due() == {partition.pk: [(0, 101)]}
    counted(partition, hour + 2 * MINUTE, 101, 10_000)
    ranked(topic, hour, 9999)
    assert is_due() == {}
    assert is_due(hour + HOUR) == {partition.pk: [(0, 10_000)]}
    # What was purged cannot be ranked any more.
    Partition.objects.update(first_offset=5000)
    assert is_due(hour + HOUR) == {}
    # No message has a key.
    Traffic.objects.update(keys=0)
    HotKey.objects.all().delete()
    assert is_due(hour + HOUR) == {}

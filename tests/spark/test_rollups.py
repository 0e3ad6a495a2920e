"""The roll-ups: figures as counted by hand, the same twice, each window whole, none forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import (
    BacklogLevel,
    Consumption,
    ErrorClass,
    ErrorLevel,
    HotKey,
    Latency,
    Position,
    Run,
    Traffic,
)
from monitoring.sample.grain import floor
from monitoring.sample.take import take
from streams.database.clock import database_now
from streams.models import ConsumerGroup, DeadMessage, Delivery, Message, Partition, State, Topic
from tests.spark import traffic_of_a_day as day

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

Roll = Callable[..., None]


def traffic_rows() -> dict[Any, tuple[int, ...]]:
    return {
        (row.partition_id, row.minute): (
            *(row.first_offset, row.end_offset, row.messages, row.bytes, row.keys, row.delayed),
        )
        for row in Traffic.objects.all()
    }


def assert_end_to_end() -> None:
    """The rows of a partition begin at its beginning, and each where the one before has ended."""
    for partition in Partition.objects.all():
        rows = Traffic.objects.filter(partition=partition).order_by("first_offset")
        places = [(row.first_offset, row.end_offset) for row in rows]
        ends = [end for _first, end in places]
        assert [first for first, _end in places] == [0, *ends[:-1]]
        assert ends[-1] == partition.next_offset


def consumption_rows() -> dict[Any, tuple[float, ...]]:
    return {
        (row.group_id, row.minute, row.thread): (
            *(row.deliveries, row.consumed, row.failed, row.retried, row.dead),
            round(row.busy_seconds, 3),
        )
        for row in Consumption.objects.all()
    }


def latency_rows() -> dict[Any, float]:
    return {
        (row.group_id, row.minute, row.leg, name): getattr(row, name)
        for row in Latency.objects.all()
        for name in ("messages", "mean", "p50", "worst")
    }


@pytest.mark.exhaustive  # test_second_computation.py counts more of them
def test_the_figures_are_those_counted_by_hand_and_the_same_twice(roll) -> None:
    day.make()
    roll()
    assert traffic_rows() == day.traffic_by_hand()
    assert consumption_rows() == day.consumption_by_hand()
    assert {
        (row.group_id, row.minute, row.error_class): (row.failed, row.dead)
        for row in ErrorClass.objects.all()
    } == day.errors_by_hand()
    assert latency_rows() == pytest.approx(day.latencies_by_hand(), abs=0.002)
    assert_end_to_end()
    before = day.everything()
    assert all(before.values())
    # From the start again, as if nobody knew that it was done, and as beat does.
    Position.objects.all().delete()
    Run.objects.all().delete()
    roll()
    roll()
    assert day.everything() == before
    assert set(Run.objects.values_list("state", flat=True)) == {"done"}


@pytest.mark.exhaustive
def test_missed_windows_are_caught_up_one_by_one_with_the_same_figures(roll, monkeypatch) -> None:
    from sparkjobs.jobs import consumption, traffic

    day.make(messages=30, topics=("orders",))
    roll("traffic", "consumption")
    whole = day.everything()
    for model in (Traffic, Consumption, Latency, ErrorClass, Position, Run):
        model.objects.all().delete()
    # 30 messages of 7 s, nine to a minute: a window ends where its minute does.
    monkeypatch.setattr(traffic, "WINDOW_MESSAGES", 8)
    monkeypatch.setattr(consumption, "LONGEST", timedelta(minutes=80))
    roll("traffic", "consumption")
    assert day.everything() == whole
    runs = Run.objects.filter(job="traffic").order_by("pk")
    assert [run.state for run in runs] == ["done"] * 4
    times = Run.objects.filter(job="consumption").order_by("pk").values_list("since", "until")
    windows: list[Any] = list(times)
    assert len(windows) == 3
    assert all(since <= before for (_, before), (since, _) in pairwise(windows))


def test_a_minute_longer_than_a_window_is_counted_as_a_whole(roll, monkeypatch) -> None:
    """The different keys of two parts of it would not add up."""
    from sparkjobs.jobs import traffic

    monkeypatch.setattr(traffic, "WINDOW_MESSAGES", 4)
    day.make(messages=10, topics=("orders",), seconds=0)
    # It fills a window just so, and grows.
    for end in (4, 10):
        Partition.objects.update(next_offset=end)
        roll("traffic")
    assert traffic_rows() == day.traffic_by_hand()
    assert_end_to_end()


def test_the_minute_that_was_open_is_counted_again_as_a_whole(roll) -> None:
    day.make(messages=10, topics=("orders",), seconds=0)
    Partition.objects.update(next_offset=6)
    later = Message.objects.filter(offset__gte=6)
    offsets = list(later.order_by("offset").values_list("pk", flat=True))
    later.update(offset=None)
    roll("traffic")
    assert [row.messages for row in Traffic.objects.all()] == [6]
    for offset, pk in enumerate(offsets, start=6):
        Message.objects.filter(pk=pk).update(offset=offset)
    Partition.objects.update(next_offset=10)
    roll("traffic")
    assert traffic_rows() == day.traffic_by_hand()
    assert_end_to_end()


@pytest.mark.exhaustive
def test_what_is_purged_stays_counted_and_what_was_missed_is_said(roll) -> None:
    day.make(messages=20, topics=("orders",), seconds=0)
    partition = Partition.objects.get()
    Partition.objects.update(next_offset=8)
    roll("traffic")
    # Purged: six that were counted, in a minute that is open still; and then more than that.
    Partition.objects.update(first_offset=6, next_offset=12)
    Message.objects.filter(offset__lt=6).delete()
    roll("traffic")
    Partition.objects.update(first_offset=15, next_offset=20)
    Message.objects.filter(offset__lt=15).delete()
    roll("traffic")
    rows = Traffic.objects.order_by("first_offset")
    assert [(row.first_offset, row.end_offset, row.messages) for row in rows] == [
        (0, 8, 8),
        (8, 12, 4),
        (15, 20, 5),
    ]
    # The keys of the parts of a minute are not more than the minute had.
    assert sum(row.keys for row in rows) <= 3
    assert list(Run.objects.order_by("pk").values_list("missed", flat=True)) == [0, 0, 3]
    roll("consumption")
    before = day.everything()
    Message.objects.all().delete()
    oldest = list(Delivery.objects.order_by("pk").values_list("pk", flat=True)[:3])
    Delivery.objects.filter(pk__in=oldest).delete()
    Partition.objects.update(first_offset=20)
    Position.objects.all().delete()
    Run.objects.all().delete()
    roll("traffic", "consumption")
    assert day.everything() == before
    assert partition.pk


def test_a_hole_in_the_log_does_not_stop_the_roll_up(roll) -> None:
    day.make(messages=12, topics=("orders",), seconds=30)
    Message.objects.filter(offset__in=[0, 1, 2, 5, 6, 11]).delete()
    roll("traffic")
    assert_end_to_end()
    assert sum(row.messages for row in Traffic.objects.all()) == 6
    Message.objects.all().delete()
    Partition.objects.update(next_offset=15)
    roll("traffic")
    assert Position.objects.get().next_offset == 15


@pytest.mark.exhaustive
def test_a_delivery_that_was_open_is_counted_when_it_has_finished_before(roll) -> None:
    """Its handler's transaction commits late, with the time of the statement before."""
    day.make(messages=10, topics=("orders",))
    group, partition = ConsumerGroup.objects.all()[0], Partition.objects.get()
    claimed = timezone.now() - timedelta(minutes=10)
    late = day.add_delivery(group, partition, (0, 4), claimed, took=None, thread="slow")
    roll("consumption")
    roll("consumption")
    # It does not hold the windows back: what was done since its claim is not read each time.
    newest = Run.objects.latest("pk").since
    assert newest
    assert newest > claimed
    assert not Consumption.objects.filter(thread="slow").exists()
    finished = claimed + timedelta(minutes=1)
    Delivery.objects.filter(pk=late.pk).update(state=State.DONE, progress=5, finished_at=finished)
    roll("consumption")
    assert consumption_rows() == day.consumption_by_hand()
    assert Consumption.objects.get(thread="slow").consumed == 5
    assert latency_rows() == pytest.approx(day.latencies_by_hand(), abs=0.002)
    # Nothing but its minute was counted again, and that once.
    roll("consumption")
    runs = list(Run.objects.order_by("pk").values_list("until", "read"))
    assert [(until is None, read) for until, read in runs[1:]] == [
        *((False, 0), (True, 1), (False, 0), (False, 0)),
    ]


@pytest.mark.exhaustive
def test_an_open_delivery_older_than_a_window_does_not_hold_the_windows_up(
    roll, monkeypatch
) -> None:
    from sparkjobs.jobs import consumption

    begin = day.make(messages=10, topics=("orders",))
    group, partition = ConsumerGroup.objects.all()[0], Partition.objects.get()
    day.add_delivery(group, partition, (0, 4), begin, took=None)
    monkeypatch.setattr(consumption, "LONGEST", timedelta(hours=2))
    roll("consumption")
    assert consumption_rows() == day.consumption_by_hand()


@pytest.mark.exhaustive
def test_a_message_given_up_later_is_counted_where_it_failed_last(roll) -> None:
    """max_retries was lowered: what waits is buried, and its last delivery notes it."""
    day.make(messages=10, topics=("orders",))
    roll("consumption")
    group = ConsumerGroup.objects.get(name="mail")
    last = Delivery.objects.filter(group=group, dead=0).order_by("-pk")[0]
    Delivery.objects.filter(pk=last.pk).update(dead=1, failed=1, state=State.RETRY)
    message = Message.objects.get(offset=last.last_offset)
    day.add_letter(group, message, timezone.now())
    roll("consumption")
    assert {place: row[4] for place, row in consumption_rows().items()} == {
        place: row[4] for place, row in day.consumption_by_hand().items()
    }


@pytest.mark.exhaustive
def test_a_letter_whose_transaction_commits_late_is_counted(roll) -> None:
    day.make(messages=10, topics=("orders",))
    roll("consumption")
    until = Run.objects.get().until
    assert until
    died = day.minute_of(until) - timedelta(seconds=1)
    day.add_letter(ConsumerGroup.objects.all()[0], Message.objects.get(offset=9), died)
    roll("consumption")
    assert ErrorClass.objects.get(minute=day.minute_of(died)).dead == 1


@pytest.mark.exhaustive
def test_names_that_differ_only_in_case_are_counted_each_for_itself(roll) -> None:
    """A server that took them for one row would keep the larger figure, and lose the other one."""
    topic = Topic.objects.create(name="orders")
    partition, group = topic.partitions.get(), ConsumerGroup.objects.create(topic=topic, name="g")
    at = timezone.now().replace(minute=30, second=0, microsecond=0) - timedelta(hours=2)
    for number, name in enumerate(("HTTPError", "HttpError", "HttpErrör", "HttpError ")):
        failed = {"failed": 1, "error": f"{name}: no", "thread": name[:9].upper()}
        if number:
            failed["thread"] = name[:9]
        for time in (at, at + timedelta(minutes=1)):
            one = day.delivery(group, partition, (number, number), time, day.SECOND, **failed)
            one.client_id = name.strip()
            one.save()
    message = Message(partition=partition, offset=0, pk=1, body=b"", size=0, body_type="bytes")
    message.created_at = at
    for name in ("shop.HTTPError", "shop.HttpError"):
        letter = day.add_letter(group, message, at)
        DeadMessage.objects.filter(pk=letter.pk).update(error_class=name)
    roll("consumption")
    rows = ErrorClass.objects.filter(minute=at).values_list("error_class", "failed", "dead")
    expected = [("HTTPError", 1, 1), ("HttpError", 2, 1), ("HttpErrör", 1, 0)]
    assert sorted(rows) == expected
    sums = ErrorLevel.objects.filter(grain=60).values_list("error_class", "failed", "dead")
    twice = [(name, 2 * failed, dead) for name, failed, dead in expected]
    assert sorted(sums) == twice
    by_client = Consumption.objects.filter(minute=at).values_list("client_id", "thread", "failed")
    assert sorted(by_client) == [
        ("HTTPError", "HTTPERROR", 1),
        ("HttpError", "HttpError", 2),
        ("HttpErrör", "HttpErrör", 1),
    ]


def test_the_backlog_of_an_hour_is_that_of_its_samples(roll) -> None:
    day.make(messages=20, topics=("orders", "flights"))
    group, partition = ConsumerGroup.objects.all()[0], Partition.objects.all()[0]
    minute = floor(database_now("default"), 60)
    for number, (place, offset) in enumerate(((12, 3), (5, 4))):
        group.cursors.update(next_offset=place)
        group.retries.create(partition=partition, offset=offset, attempt=2, due_at=timezone.now())
        take("default", minute + number * day.MINUTE, 1 if number else 360)
    roll("backlog")
    for grain, start in ((60, minute), (24 * 60, floor(minute, 24 * 60))):
        rows = {row.group_id: row for row in BacklogLevel.objects.filter(grain=grain, start=start)}
        assert set(rows) == set(ConsumerGroup.objects.values_list("pk", flat=True))
        row = rows[group.pk]
        assert (row.samples, row.behind, row.least, row.waiting) == (2, 15, 8, 2)
        assert row.age_seconds is not None
        assert row.age_seconds > 2 * 3600
    before = list(BacklogLevel.objects.order_by("pk").values())
    roll("backlog")
    assert list(BacklogLevel.objects.order_by("pk").values()) == before


def test_hot_keys_are_those_of_the_hours_since_the_last_time(roll) -> None:
    day.make(messages=40, topics=("orders",))
    Message.objects.filter(offset__lt=15).update(key="hot")
    roll("traffic", "backlog")
    first = HotKey.objects.order_by("hour", "place")[0]
    assert (first.key, first.place) == ("hot", 1)
    of_hour = Message.objects.filter(sequenced_at__gte=first.hour)
    of_hour = of_hour.filter(sequenced_at__lt=first.hour + timedelta(hours=1))
    hot = of_hour.filter(key="hot")
    assert first.messages == hot.count()
    assert first.bytes == sum(hot.values_list("size", flat=True))
    assert first.share == pytest.approx(hot.count() / of_hour.count())

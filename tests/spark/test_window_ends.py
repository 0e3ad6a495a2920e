"""Where the windows end, and where the next ones begin."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import BacklogLevel, GroupSample, HotKey, Run, Traffic
from sparkjobs.errors import ReplicaBehind
from sparkjobs.instants import minute_of, now
from sparkjobs.jobs import backlog, consumption, traffic
from sparkjobs.rollup.claims import LATE, messages_between
from sparkjobs.rollup.windows import Window, roll_up
from streams.models import ConsumerGroup, Delivery, Topic
from tests.spark import traffic_of_a_day as day

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def test_a_window_of_the_past_has_a_limited_number_of_messages(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has a time of each message in memory; a minute is never cut."""
    monkeypatch.setattr(consumption, "WINDOW_MESSAGES", 100)
    topic = Topic.objects.create(name="orders")
    group = ConsumerGroup.objects.create(topic=topic, name="mail")
    partition = topic.partitions.get()
    end = timezone.now().replace(second=30, microsecond=0)
    begin = end.replace(second=0) - 20 * HOUR
    times = [begin + n * 10 * MINUTE for n in range(120)] + [begin + 5 * HOUR] * 30
    Delivery.objects.bulk_create(
        [day.delivery(group, partition, (0, 9), at, MINUTE) for at in sorted(times)]
    )
    since, windows = begin, []
    while since < end - consumption.SHORTEST:
        until = consumption.window_end(connection, since, end)
        windows.append((since, until))
        since = max(since, minute_of(until - LATE))
    assert windows[-1][1] == end
    assert len(windows) < 40
    counts = [messages_between(connection, *window) for window in windows]
    longest = [
        last - first for (first, last), count in zip(windows, counts, strict=True) if count > 100
    ]
    assert set(longest) <= {consumption.SHORTEST}
    assert sum(counts) >= 1500
    short = consumption.window_end(connection, end - MINUTE, end)
    assert short == end


def test_the_traffic_is_counted_until_now_only_when_nothing_is_left(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise topics of which nothing is counted yet would be ranked as if nothing had come."""
    monkeypatch.setattr(traffic, "WINDOW_MESSAGES", 10)
    monkeypatch.setattr(traffic, "_count", lambda messages, stretches: [])
    before = timezone.now() - 2 * HOUR
    Run.objects.create(job="traffic", state="done", until=before, finished_at=before)
    for name in ("orders", "flights"):
        Topic.objects.create(name=name).partitions.update(next_offset=10)
    nothing: Any = None
    begin = timezone.now()
    roll_up("traffic", connection, lambda: traffic.window(nothing, connection), print)
    _old, first, last = Run.objects.order_by("pk")
    assert first.until == before
    assert last.until is not None
    assert last.until >= begin


def test_what_is_written_while_a_run_works_is_for_the_next_run(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter that comes after the look at the past must be after the end of the windows, too."""
    looked: list[datetime] = []
    ends: list[datetime] = []

    def past(connection: Any) -> list[Any]:
        looked.append(now(connection))
        return []

    def following(reader: Any, end: datetime) -> Window:
        ends.append(end)
        return Window("", values={"until": end}, more=len(ends) < 3)

    monkeypatch.setattr(consumption, "_past", past)
    monkeypatch.setattr(consumption, "_next", following)
    no_spark: Any = None
    consumption.roll_up_consumption(no_spark, no_spark, connection, lambda text: None)
    assert len(set(ends)) == 1
    assert ends[0] <= looked[0]


def test_hot_keys_wait_for_the_partitions_that_the_traffic_has_not_reached(
    connection: Any,
) -> None:
    """It has counted one partition up to now, and failed before the hours of another."""
    assert backlog.keys_from(connection) is None
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    partition = Topic.objects.create(name="orders").partitions.get()
    counted = {"end_offset": 1, "messages": 1, "bytes": 0, "keys": 1, "delayed": 0}
    Traffic.objects.create(partition=partition, minute=hour, first_offset=0, **counted)
    Run.objects.create(job="traffic", state="done")
    # Others may have messages of the hour before, of after the look at them.
    assert backlog.keys_from(connection) == hour - HOUR
    Traffic.objects.update(minute=hour + 5 * MINUTE)
    assert backlog.keys_from(connection) == hour
    Run.objects.create(job="traffic", state="failed")
    assert backlog.keys_from(connection) is None


class Away:
    """Messages of a replica that is away."""

    def covering(self, *asked: Any, is_last: bool) -> Any:
        raise ReplicaBehind("away")


def sampled(at: datetime, behind: int) -> None:
    when = {"minute": at, "taken_at": at, "grain": 360}
    reading = {"behind": behind, "open": 0, "waiting": 0, "dead": 0, "consumers": 0}
    GroupSample.objects.create(**when, group_id=1, **reading)


def test_samples_that_could_not_be_added_up_are_so_later(connection: Any) -> None:
    """A replica is away, so that the hot keys of the same window cannot be counted."""
    topic = Topic.objects.create(name="orders")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    none: Any = None
    Traffic.objects.create(
        partition=topic.partitions.get(),
        minute=hour - MINUTE,
        first_offset=0,
        end_offset=1,
        messages=1,
        bytes=0,
        keys=1,
        delayed=0,
    )
    Run.objects.create(job="backlog", state="done", until=hour - 3 * HOUR)
    sampled(hour - 2 * HOUR, 7)
    away: Any = Away()
    with pytest.raises(ReplicaBehind):
        backlog.roll_up_backlog(none, none, connection, print, away)
    assert not BacklogLevel.objects.exists()
    assert Run.objects.latest("pk").error == "ReplicaBehind: away"
    Traffic.objects.all().delete()  # there are no hot keys to count
    backlog.roll_up_backlog(none, none, connection, print, away)
    assert BacklogLevel.objects.get(grain=60).behind == 7
    assert not HotKey.objects.exists()


def test_the_backlog_of_weeks_is_several_windows_and_the_hot_keys_are_counted_once(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[datetime] = []

    def look(connection: Any, since: datetime) -> list[Any]:
        looks.append(since)
        return []

    monkeypatch.setattr(backlog, "hours", look)
    now_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    days = (20, 10, 0)
    for ago in days:
        sampled(now_hour - timedelta(days=ago), ago)
    none: Any = None
    backlog.roll_up_backlog(none, none, connection, print, none)
    rows = BacklogLevel.objects.filter(grain=60).order_by("start")
    assert [row.behind for row in rows] == list(days)
    assert len(looks) == 1
    runs = list(Run.objects.order_by("pk"))
    assert [run.state for run in runs] == ["done"] * 3
    assert runs[-1].until
    assert runs[-1].until >= now_hour

"""Hours and days of a backlog are those of the samples of EMS, however often they are added up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import BacklogLevel, Grain, GroupSample, Run
from monitoring.old_figures import old_figures
from monitoring.sample.grain import GRAINS, floor, grain
from monitoring.sample.take import take
from sparkjobs.database import transaction
from sparkjobs.rollup import backlog
from sparkjobs.rollup.owed import JOBS, note_nothing
from sparkjobs.rollup.tables import BACKLOG, upsert
from streams import runtime_settings
from streams.models import ConsumerGroup, Cursor, Partition, SystemConfig, Topic

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
FIGURES = ("samples", "behind", "least", "waiting", "dead", "age_seconds")


def sample(at: datetime, behind: int | None, group: int = 1, **more: Any) -> GroupSample:
    values: dict[str, Any] = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, **more}
    when = {"minute": at, "taken_at": at, "grain": next(g for g in GRAINS if floor(at, g) == at)}
    return GroupSample(group_id=group, behind=behind, **when, **values)


def sampled(*rows: GroupSample) -> None:
    GroupSample.objects.bulk_create(rows)


def add_up(connection: Any, since: datetime, until: datetime) -> None:
    """As a window of the job does it."""
    with transaction(connection):
        upsert(connection, BACKLOG, backlog.hours(connection, since, until))
        backlog.add_up_days(connection, since, until)


def levels() -> dict[tuple[int, datetime, int], tuple[Any, ...]]:
    rows = BacklogLevel.objects.values_list("grain", "start", "group", *FIGURES)
    return {tuple(row[:3]): tuple(row[3:]) for row in rows}


def by_hand(length: int) -> dict[tuple[int, datetime, int], tuple[Any, ...]]:
    """Compute the levels of so many minutes from all samples at once."""
    found: dict[tuple[int, datetime, int], list[GroupSample]] = {}
    for row in GroupSample.objects.all():
        found.setdefault((length, floor(row.minute, length), row.group_id), []).append(row)
    return {place: _figures(rows) for place, rows in found.items()}


def _figures(rows: list[GroupSample]) -> tuple[Any, ...]:
    behind = [row.behind for row in rows if row.behind is not None]
    ages = [row.age_seconds for row in rows if row.age_seconds is not None]
    return (
        len(rows),
        max(behind, default=None),
        min(behind, default=None),
        max(row.waiting for row in rows),
        max(row.dead for row in rows),
        max(ages, default=None),
    )


def random_days(seed: int, days: int = 3) -> None:
    """Samples of three groups, with hours in which EMS did not run, and unknown figures."""
    random = Random(seed)  # noqa: S311
    for group in (1, 2, 3):
        for hour in range(24 * days):
            share = random.choice([0, 0, 0.02, 0.5, 1])
            minutes = [number for number in range(60) if random.random() < share]
            sampled(
                *(
                    sample(
                        MIDNIGHT + hour * HOUR + minute * MINUTE,
                        random.choice([None, 0, random.randrange(10**6)]),
                        group,
                        waiting=random.randrange(99),
                        dead=random.randrange(99),
                        age_seconds=random.choice([None, 0.0, random.randrange(999) / 4]),
                    )
                    for minute in minutes
                )
            )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 4))]
)
def test_hours_and_days_are_those_of_all_their_samples(connection: Any, seed: int) -> None:
    random_days(seed)
    expected = {**by_hand(Grain.HOUR), **by_hand(Grain.DAY)}
    add_up(connection, MIDNIGHT, MIDNIGHT + 3 * DAY)
    assert levels() == expected
    # An hour in which EMS did not run is unknown, not 0.
    hours = {(start, group) for length, start, group in levels() if length == Grain.HOUR}
    assert len(hours) < 3 * 3 * 24
    # Again, of a day, of hours of two days, and all of it: nothing changes.
    for since, until in ((24, 48), (47, 49), (0, 72)):
        add_up(connection, MIDNIGHT + since * HOUR, MIDNIGHT + until * HOUR)
    assert levels() == expected


def test_windows_that_begin_anywhere_add_up_to_the_same(connection: Any) -> None:
    """The service looks each minute, and a sample comes between two looks."""
    random_days(7, days=2)
    expected = {**by_hand(Grain.HOUR), **by_hand(Grain.DAY)}
    rows = list(GroupSample.objects.order_by("minute"))
    GroupSample.objects.all().delete()
    since, step = MIDNIGHT, 97 * MINUTE
    while since < MIDNIGHT + 2 * DAY:
        until = since + step
        sampled(*(row for row in rows if since <= row.minute < until))
        add_up(connection, since, until)
        since = until
    assert levels() == expected


def test_samples_that_are_thinned_do_not_lower_what_was_added_up(connection: Any) -> None:
    sampled(*(sample(MIDNIGHT + n * MINUTE, n) for n in range(60)))
    add_up(connection, MIDNIGHT, MIDNIGHT + HOUR)
    before = levels()
    assert before[Grain.HOUR, MIDNIGHT, 1][:3] == (60, 59, 0)
    GroupSample.objects.filter(grain__lt=60).delete()
    add_up(connection, MIDNIGHT, MIDNIGHT + HOUR)
    assert levels() == before
    # Of an hour that nobody has added up, what is left is better than nothing.
    sampled(sample(MIDNIGHT + HOUR, 7))
    add_up(connection, MIDNIGHT, MIDNIGHT + 2 * HOUR)
    assert levels()[Grain.HOUR, MIDNIGHT + HOUR, 1][:3] == (1, 7, 7)
    assert levels()[Grain.DAY, MIDNIGHT, 1][:3] == (61, 59, 0)


def test_all_grains_of_the_samples_are_read(connection: Any) -> None:
    assert f"IN ({', '.join(map(str, GRAINS))})" in backlog.OF_SAMPLES
    assert f"`grain` = {GRAINS[0]}" in backlog.FIRST
    assert grain(MIDNIGHT, None) == GRAINS[0]  # that of the first sample of all


def test_a_partition_that_is_added_counts_from_its_first_sample_on(connection: Any) -> None:
    """The figures are of the group: never a sum of what its partitions had at different times."""
    topic = Topic.objects.create(name="orders")
    group = ConsumerGroup.objects.create(topic=topic, name="mail")

    def at(minute: int, **behind: int) -> None:
        for name, count in behind.items():
            number = int(name[1:])
            partition, _new = Partition.objects.get_or_create(topic=topic, number=number)
            Partition.objects.filter(pk=partition.pk).update(next_offset=1000)
            Cursor.objects.update_or_create(
                group=group, partition=partition, defaults={"next_offset": 1000 - count}
            )
        moment = MIDNIGHT + minute * MINUTE
        take("default", moment, next(g for g in GRAINS if floor(moment, g) == moment))

    at(0, p0=10)
    at(1, p0=40)
    at(2, p0=5, p1=20)
    at(3, p0=1, p1=30)
    add_up(connection, MIDNIGHT, MIDNIGHT + HOUR)
    assert levels()[Grain.HOUR, MIDNIGHT, group.pk][:3] == (4, 40, 10)


def test_a_broadcast_group_is_not_behind_as_far_as_anybody_knows(connection: Any) -> None:
    sampled(sample(MIDNIGHT, None), sample(MIDNIGHT + MINUTE, None))
    add_up(connection, MIDNIGHT, MIDNIGHT + HOUR)
    assert levels()[Grain.DAY, MIDNIGHT, 1][:3] == (2, None, None)


def done(until: datetime) -> None:
    Run.objects.create(job=backlog.JOB, state="done", until=until)


def test_the_next_window_begins_where_a_sample_may_have_come_late(
    connection: Any,
) -> None:
    now = MIDNIGHT + 5 * HOUR + 30 * MINUTE
    # Nothing was sampled, nothing was added up.
    assert backlog.stretches(connection, now) == [(MIDNIGHT + 5 * HOUR, now)]
    sampled(sample(MIDNIGHT, 1), sample(MIDNIGHT + MINUTE, 1))
    assert backlog.stretches(connection, now) == [(MIDNIGHT, now)]
    done(now - MINUTE)
    assert backlog.stretches(connection, now) == [(MIDNIGHT + 5 * HOUR, now)]
    done(MIDNIGHT + 5 * HOUR + 4 * MINUTE)
    assert backlog.stretches(connection, now) == [(MIDNIGHT + 4 * HOUR, now)]


def test_what_nobody_has_added_up_for_weeks_is_so_in_parts(connection: Any) -> None:
    sampled(sample(MIDNIGHT, 1))
    now = MIDNIGHT + 20 * DAY + HOUR / 2
    found = backlog.stretches(connection, now)
    assert [since for since, _until in found] == [MIDNIGHT + n * 7 * DAY for n in range(3)]
    assert [until for _since, until in found[:-1]] == [since for since, _until in found[1:]]
    assert found[-1][1] == now
    # A run that was killed after the first one goes on from there.
    done(found[0][1])
    assert backlog.stretches(connection, now)[0][0] == MIDNIGHT + 7 * DAY - HOUR


def test_a_quiet_time_has_its_hours_without_spark(connection: Any) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for job in JOBS:
        Run.objects.create(job=job, state="done", until=hour - 9 * DAY, seconds=1.0)
    sampled(*(sample(hour - n * DAY, 100 + n) for n in (8, 3, 0)), sample(hour + MINUTE, 7))
    at = hour + 2 * MINUTE
    for _ in range(2):
        note_nothing(connection, at)
        found = {start: row[:3] for (length, start, _), row in levels().items() if length == 60}
        assert found == {
            hour - 8 * DAY: (1, 108, 108),
            hour - 3 * DAY: (1, 103, 103),
            hour: (2, 100, 7),
        }
    assert BacklogLevel.objects.filter(grain=Grain.DAY).count() == 3


def test_hours_and_days_are_kept_as_long_as_the_figures_and_longer_than_minutes() -> None:
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for days in (1, 40, 399, 402):
        for length in Grain:
            BacklogLevel.objects.create(
                grain=length, start=today - days * DAY, group_id=1, samples=1, waiting=0, dead=0
            )
    for name, value in (("figureRetentionDays", 400), ("figureMinuteRetentionDays", 20)):
        SystemConfig.objects.create(name=name, value=value)
    runtime_settings.forget()
    assert sum(old_figures("default")) == 2
    kept = BacklogLevel.objects.order_by("-start").values_list("start", flat=True)
    assert sorted({(today - start) / DAY for start in kept}) == [1, 40, 399]

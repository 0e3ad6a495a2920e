"""The plans of the pages of the monitoring and of the sample: somebody may open one each second."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from monitoring.models import (
    Consumption,
    ConsumptionLevel,
    ErrorClass,
    Grain,
    GroupSample,
    HotKey,
    Latency,
    PartitionSample,
    Run,
    Traffic,
)
from monitoring.sample.grain import GRAINS, floor
from monitoring.sample.take import newest, take
from sparkjobs.rollup import backlog
from streams.database.clock import database_now
from streams.models import Message
from tests.lab.benchmarks.rows import copy
from tests.plans.seed import Seed, analyze
from tests.plans.statements import LARGE, Statements, Step, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

# So many minutes until now, and copies of them, days before: twice as many so many times.
MINUTES, DOUBLED = 120, 5
GROWING = {
    *LARGE,
    *(f"ems_monitoring_{name}" for name in ("sample", "sample_group", "traffic", "latency")),
    *("ems_monitoring_error", "ems_monitoring_hot_key"),
    *("ems_monitoring_consumption", "ems_monitoring_consumption_level"),
}
# Sorted or grouped: a range whose length has a limit. What is open; the roll-ups of some minutes;
# the hottest keys of a day; the samples of a range, of a coarse grain.
SHORT = {
    *("ems_log_open", "ems_log_place"),
    *("ems_traffic_minute", "ems_latency_minute", "ems_error_minute", "ems_error_place"),
    *("ems_hot_key_hour", "ems_hot_key_place"),
    *("ems_consumption_place", "ems_consumption_level_place"),
    *("ems_sample_minute", "ems_sample_group_minute"),
}
# Read up to a limit: the dead letters of a day, which here are all that there are.
COUNTED = {"ems_dead_died"}


@pytest.fixture(scope="module")
def rolled_up(seeded: Seed, django_db_blocker: Any) -> Iterator[Seed]:
    """With samples and roll-ups of two hours, and what they were computed from long ago."""
    models = (
        *(PartitionSample, GroupSample, Traffic, Latency, ErrorClass, HotKey, Run),
        *(Consumption, ConsumptionLevel),
    )
    with django_db_blocker.unblock():
        _fill(seeded)
        analyze()
        yield seeded
        for model in models:
            model._base_manager.all().delete()
        User.objects.all().delete()


def _fill(seeded: Seed) -> None:
    now = floor(database_now("default"), 1)
    minutes = [now - timedelta(minutes=n) for n in range(MINUTES)]

    def sampled(at: Any) -> dict[str, Any]:
        grain = next((one for one in GRAINS if floor(at, one) == at), 1)
        return {"minute": at, "taken_at": at, "grain": grain}

    PartitionSample.objects.bulk_create(
        PartitionSample(**sampled(at), partition=one, first_offset=0, next_offset=9, inbox=0)
        for at in minutes
        for one in seeded.partitions
    )
    GroupSample.objects.bulk_create(
        GroupSample(**sampled(at), group=one, open=0, waiting=0, dead=0, consumers=1)
        for at in minutes
        for one in seeded.groups
    )
    Traffic.objects.bulk_create(
        Traffic(
            partition=one,
            minute=at,
            first_offset=number,
            end_offset=number + 1,
            messages=1,
            bytes=1,
            keys=0,
            delayed=0,
        )
        for number, at in enumerate(minutes)
        for one in seeded.partitions
    )
    Latency.objects.bulk_create(
        Latency(group=one, minute=at, leg="total", messages=1, mean=1, p50=1, p95=1, p99=1, worst=1)
        for at in minutes
        for one in seeded.groups
    )
    ErrorClass.objects.bulk_create(
        ErrorClass(group=one, minute=at, error_class="ValueError", failed=1, dead=0)
        for at in minutes
        for one in seeded.groups
    )
    names = ("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing", "passed")
    one: dict[str, Any] = dict.fromkeys((*names, "busy_seconds", "longest_seconds"), 1)
    threads = [f"t-{n}" for n in range(4)]
    Consumption.objects.bulk_create(
        Consumption(group=group, minute=at, client_id="c", thread="t", **one)
        for at in minutes
        for group in seeded.groups
    )
    ConsumptionLevel.objects.bulk_create(
        ConsumptionLevel(
            grain=grain,
            start=floor(now, grain) - n * timedelta(minutes=grain),
            group=group,
            client_id="c",
            thread=thread,
            **one,
        )
        for grain in Grain
        for n in range(40)
        for group in seeded.groups
        for thread in threads
    )
    for times in range(DOUBLED):
        days = 2 * 2**times
        earlier = f"r.minute - INTERVAL {days} DAY"
        for table in ("sample", "sample_group", "latency", "error", "consumption"):
            copy(connection, f"ems_monitoring_{table}", "", minute=earlier)
        offset = f"r.first_offset + {MINUTES} * {2**times}"
        copy(connection, "ems_monitoring_traffic", "", minute=earlier, first_offset=offset)
    HotKey.objects.bulk_create(
        HotKey(
            topic=one,
            hour=now - timedelta(hours=hours),
            place=place,
            key=f"k{place}",
            messages=1,
            bytes=1,
            share=0.1,
        )
        for hours in range(48)
        for one in seeded.topics
        for place in range(10)
    )
    done = {"job": "traffic", "state": "done", "until": now, "finished_at": now}
    Run.objects.bulk_create(Run(**done) for _ in range(1000))


def problems(step: Step) -> list[str]:
    if step.table not in GROWING:
        return []
    found = []
    if step.access == "ALL" or (step.access == "index" and step.key not in COUNTED):
        found.append(f"reads all of {step.table} ({step.access}, {step.key})")
    sorts = any(word in step.extra for word in ("filesort", "temporary", "join buffer"))
    keys = set((step.key or "").split("|"))  # MariaDB may read one and filter it by another
    if sorts and not keys & SHORT:
        found.append(f"sorts {step.table}: {step.extra}")
    return found


def assert_sound(statements: Statements) -> None:
    assert statements, "nothing ran"
    bad = [
        f"{statement}\n    !!! {'; '.join(found)}"
        for statement in statements
        if (found := [one for step in statement.steps for one in problems(step)])
    ]
    assert not bad, "\n".join(bad)


@pytest.fixture
def browser() -> Client:
    client = Client()
    user = User.objects.create(username="plans", is_staff=True, is_superuser=True)
    client.force_login(user)
    return client


PAGES = [
    *("changelist", "topics", "topic", "groups", "group", "consumption"),
    *("alarms", "streams", "pipeline", "search"),
]
# The two that read most; the others read the same, or less.
FIRST = [("changelist", "1h"), ("group", "1h")]
OTHERS = [
    pytest.param(name, asked, marks=pytest.mark.exhaustive)
    for name in PAGES
    for asked in ("1h", "24h")
    if (name, asked) not in FIRST
]
OTHERS += [
    pytest.param(name, "30d", marks=pytest.mark.exhaustive) for name in ("topics", "consumption")
]


@pytest.mark.parametrize(("name", "asked"), [*FIRST, *OTHERS])
def test_a_page_reads_short_parts_of_large_tables(
    rolled_up: Seed, browser: Client, name: str, asked: str
) -> None:
    group = rolled_up.group
    arguments = {"topic": [group.topic_id], "group": [group.pk], "consumption": [group.pk]}
    url = reverse(f"admin:ems_monitoring_overview_{name}", args=arguments.get(name, []))
    query = f"?range={asked}&q=topic-1/0@17"
    with explained() as statements:
        assert browser.get(url + query).status_code == 200
    assert_sound(statements)


def test_hours_of_a_backlog_are_read_from_their_own_samples(
    rolled_up: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(opened: Any, statement: str, values: Any = ()) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement, tuple(values))
            return list(cursor.fetchall())

    monkeypatch.setattr(backlog, "fetch", fetch)
    hour = floor(database_now("default"), 60) - timedelta(hours=1)
    with explained() as statements:
        assert backlog.hours(None, hour, hour + timedelta(hours=1))
        fetch(None, backlog.FIRST)
    of_hour = statements.only("COUNT(*)")
    assert of_hour.indexes == ["ems_monitoring_sample_group.ems_sample_group_minute"]
    assert of_hour.steps[0].access == "range"
    assert_sound(statements)


def test_a_search_that_compares_reads_the_log_backwards(rolled_up: Seed, browser: Client) -> None:
    Message.objects.filter(offset=17).update(tag="seldom")
    url = reverse("admin:ems_monitoring_overview_search")
    with explained() as statements:
        assert "seldom" in browser.get(f"{url}?q=tag:seldom").text
    assert_sound(statements)


def test_a_sample_reads_short_parts_of_large_tables(rolled_up: Seed) -> None:
    minute = floor(database_now("default"), 1) + timedelta(minutes=1)
    with explained() as statements:
        newest("default", minute)
        take("default", minute, 1)
    assert_sound(statements)


def test_the_inbox_of_a_partition_is_read_in_the_order_of_its_index(rolled_up: Seed) -> None:
    """As a correlated subquery MariaDB sorts it, however many messages wait."""
    from monitoring.live.inbox import partition_states

    with explained() as statements:
        states = partition_states("default", database_now("default"))
    assert sum(one.inbox for one in states) > 0
    steps = [step for s in statements for step in s.steps if step.table == "ems_msg"]
    assert {step.key for step in steps} == {"ems_msg_inbox"}
    assert not [step for step in steps if step.access in ("ALL", "index", "index_subquery")]
    heads = statements.only("MIN(`due_at`)").steps
    assert all("Using index for group-by" in one.extra for one in heads if one.table == "ems_msg")
    assert_sound(statements)

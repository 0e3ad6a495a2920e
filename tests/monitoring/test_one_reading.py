"""Whoever shows how far groups are shows the same: pages, lists, the HTTP API, samples, metrics."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from monitoring.alarms import groups as alarms
from monitoring.alarms.measured import Subject, Value
from monitoring.figures.api import overview
from monitoring.models import GroupSample
from monitoring.sample.grain import floor
from monitoring.sample.take import take
from streams.database.clock import database_now
from streams.http.routes.groups import measured
from streams.log.condition import Standing
from streams.log.standings import standings
from streams.metrics.reading import MetricReading
from streams.models import ConsumerGroup, Mode
from tests.streams.test_lag_by_hand import by_hand, compare, history

pytestmark = pytest.mark.django_db

SEEDS = range(6)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=SEEDS)
def expected(request: pytest.FixtureRequest) -> dict[ConsumerGroup, dict[str, Any]]:
    """Make a random history; return what a second computation says of each group."""
    now = database_now("default")
    history(Random(request.param), now)  # noqa: S311
    groups = list(ConsumerGroup.objects.select_related("topic"))
    old = [group for group in groups if group.name != "plain"]
    for at, behind in ((10 * MINUTE, 900), (5 * MINUTE, 700)):
        minute = floor(now - at, 1)
        GroupSample.objects.bulk_create(
            GroupSample(
                minute=minute,
                taken_at=minute,
                group=group,
                behind=behind,
                done=1000 - behind,
                open=0,
                waiting=0,
                dead=0,
                consumers=1,
            )
            for group in old
        )
    return {group: by_hand(group, now) for group in groups}


def said(found: list[Standing]) -> list[Any]:
    """Return what is said of each group, the worst first; instants are a moment apart."""
    worst_first = sorted(found, key=lambda one: one.order)
    return [(one.lag.group, one.condition, one.trouble, one.level) for one in worst_first]


@pytest.mark.every_database
def test_groups_stand_as_their_rows_say_wherever_one_looks(expected: dict[Any, Any]) -> None:
    groups = ConsumerGroup.objects.select_related("topic")
    everywhere: list[list[Standing]] = [
        standings(groups, "default"),  # commands, lists of the admin, the doctor
        measured(groups, "default"),  # the HTTP API
        overview("default")["groups"],  # its overview, and the pages of the monitoring
    ]
    for found in everywhere:
        assert {one.lag.group for one in found} == set(expected)
        for one in found:
            compare(one.lag, expected[one.lag.group])
        assert said(found) == said(everywhere[0])


def test_a_sample_has_what_the_rows_add_up_to(expected: dict[Any, Any]) -> None:
    minute = floor(database_now("default"), 1) + MINUTE
    take("default", minute, 1)
    rows = {row.group: row for row in GroupSample.objects.filter(minute=minute)}
    assert set(rows) == set(expected)
    for group, row in rows.items():
        for name in ("behind", "open", "waiting", "dead", "done", "consumers", "blocked"):
            assert getattr(row, name) == expected[group][name], name
        age = expected[group]["age"]
        assert row.age_seconds == (age and pytest.approx(age.total_seconds(), abs=30))


METRICS = {
    "ems_group_lag_messages": "behind",
    "ems_group_open_messages": "open",
    "ems_group_retries": "waiting",
    "ems_group_dead_letters": "dead",
    "ems_group_consumers": "consumers",
}


@pytest.mark.every_database
def test_metrics_and_alarms_have_what_the_rows_add_up_to(expected: dict[Any, Any]) -> None:
    found = {(name, labels): value for name, labels, value in MetricReading("default").samples()}
    lag, blocked = alarms.lag("default"), alarms.blocked("default")
    unserved = alarms.no_consumer("default")
    for group, figures in expected.items():
        labels = group.topic.name, group.name
        for metric, name in METRICS.items():
            if group.mode == Mode.BROADCAST and name != "consumers":
                assert (metric, labels) not in found
            else:
                assert found[metric, labels] == (figures[name] or 0), metric
        # Of a range that was given back, an alarm only asks whether somebody is there to take it.
        assert lag.get(Subject(*labels), Value(None)).number == figures["unclaimed"]
        is_unserved = not figures["consumers"] and group.mode != Mode.BROADCAST
        assert (Subject(*labels) in unserved) == is_unserved
        if is_unserved:
            waits = figures["unclaimed"] or figures["given_back"] or figures["waiting"]
            assert unserved[Subject(*labels)].number == float(figures["unclaimed"] or bool(waits))
        value = blocked.get(Subject(*labels))
        assert (value is not None) == bool(figures["blocked"])
        if value is not None:
            assert value.detail.startswith(f"{figures['blocked']} ")
            assert (value.number is None) == (figures["blocked_at"] is None)

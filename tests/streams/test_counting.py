"""Counts that end: as many as there are, or as many as were asked for."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams.log.counting import CHUNK, count_each
from streams.log.lag import countable, lags
from streams.models import ConsumerGroup, Partition, RetryMessage, Topic, UtcNow

pytestmark = pytest.mark.django_db


@pytest.fixture
def groups() -> list[ConsumerGroup]:
    topic = Topic.objects.create(name="orders")
    made = [ConsumerGroup.objects.create(topic=topic, name=f"g{n}") for n in range(3)]
    place = Partition.objects.get()
    RetryMessage.objects.bulk_create(
        RetryMessage(group=group, partition=place, offset=offset, due_at=UtcNow())
        for n, group in enumerate(made)
        for offset in range(3 * n)
    )
    return made


def test_a_count_ends_at_the_limit(groups) -> None:
    rows = {group.name: RetryMessage.objects.filter(group=group) for group in groups}
    assert count_each(rows, 5, "default") == {"g0": 0, "g1": 3, "g2": 5}
    assert count_each({}, 5, "default") == {}


def test_hundreds_are_counted_in_one_statement(groups) -> None:
    rows = dict.fromkeys(range(CHUNK + 1), RetryMessage.objects.filter(group=groups[1]))
    with CaptureQueriesContext(connection) as captured:
        assert count_each(rows, 5, "default") == dict.fromkeys(rows, 3)
    assert len(captured) == 2


def test_a_lag_takes_the_counts_of_its_caller_and_otherwise_counts_everything(groups) -> None:
    chosen = ConsumerGroup.objects.order_by("name")
    counts = count_each(countable(chosen, "default"), 4, "default")
    assert [lag.waiting for lag in lags(chosen, "default", counts)] == [0, 3, 4]
    assert [lag.waiting for lag in lags(chosen, "default")] == [0, 3, 6]

"""A read is planned in tasks by its rows and its bytes, not by how far ids are apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkjobs.config import Config
from sparkjobs.errors import BadOption
from sparkjobs.source import tasks as planning
from sparkjobs.source.request import SourceRequest
from streams import consumer
from streams.errors import Reject
from streams.models import ConsumerGroup, DeadMessage, RetryMessage
from streams.models.fields import UtcNow
from streams.testing import drain
from tests.spark.direct import Reading, sent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def retries(*ids: int) -> None:
    partition = sent(messages=1)
    group = ConsumerGroup.objects.create(topic=partition.topic, name="mail")
    RetryMessage.objects.bulk_create(
        RetryMessage(pk=id_, group=group, partition=partition, offset=id_, due_at=UtcNow())
        for id_ in ids
    )


def test_two_rows_with_ids_far_apart_are_one_task(config: Config) -> None:
    retries(5, 500_000_000)
    reading = Reading(config, "id", table="retries")
    (task,) = reading.plan()
    assert [row["id"] for row in reading.task(task)] == [5, 500_000_000]


def test_ids_in_heaps_far_apart_are_divided_into_even_tasks(config: Config) -> None:
    ids = [*range(10, 110), *range(1_000_000, 1_000_150), 2**40]
    retries(*ids)
    reading = Reading(config, "id", table="retries", split_rows=25)
    read = [[row["id"] for row in reading.task(task)] for task in reading.plan()]
    assert [id_ for of_task in read for id_ in of_task] == ids
    assert [len(of_task) for of_task in read] == [25] * 10 + [1]
    assert len(Reading(config, "id", table="retries", start=2**30).plan()) == 1


def test_tasks_of_large_messages_have_fewer_rows(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SPLIT_BYTES", 10_000)
    large = sent("large", 100, tag="x")
    sent("small", 100)
    large.messages.update(size=1000)  # what the plan looks at
    plan = Reading(config, split_rows=50).plan()
    of_large = [p.rows for task in plan for p in task.ranges if p.topic == "large"]
    assert sum(of_large) == 100
    assert max(of_large) <= 10
    assert len(plan) <= 16
    without_bodies = Reading(config, "topic", "size", split_rows=50).plan()
    assert len(without_bodies) == 4


def test_tasks_of_large_dead_letters_have_fewer_rows(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    @consumer("orders", group="mail", batch=50)
    def handle(received):
        return dict.fromkeys(received, Reject("odd"))

    sent(messages=40)
    drain()
    DeadMessage.objects.update(size=1000)
    monkeypatch.setattr(planning, "SPLIT_BYTES", 10_000)
    reading = Reading(config, table="dead")
    assert len(reading.plan()) == 4
    assert len(reading.rows()) == 40
    assert len(Reading(config, "id", table="dead").plan()) == 1


def test_a_partition_may_have_several_bounds(config: Config) -> None:
    orders, flights = sent("orders", 30), sent("flights", 10)
    bounds: dict[int, Any] = {orders.pk: [[2, 5], [5, 7], [28, 30]], flights.pk: [9, 10]}
    reading = Reading(config, "topic", "offset", bounds=json.dumps(bounds))
    (task,) = reading.plan()
    assert len(task.ranges) == 3  # the first two are one
    read = sorted((row["topic"], row["offset"]) for row in reading.task(task))
    assert read == [("flights", 9), *(("orders", n) for n in (2, 3, 4, 5, 6, 28, 29))]
    for wrong in ("[[5, 9], [3, 4]]", "[[0, 2], [1, 4]]", "[]", "[[1]]"):
        with pytest.raises(BadOption, match="bounds must be like"):
            SourceRequest.of({"bounds": f'{{"{orders.pk}": {wrong}}}'})


def test_no_more_tasks_are_planned_than_connections_are_allowed(config: Config) -> None:
    for number in range(7):
        sent(f"t{number}", 20)
    for connections, count in ((3, 3), (1, 1), (100, 28)):
        reading = Reading(config, "topic", split_rows=5, connections=connections)
        plan = reading.plan()
        assert len(plan) == count
        assert sum(len(reading.task(task)) for task in plan) == 140
    retries(1, 2, 3, 4, 5)
    reading = Reading(config, "id", table="retries", split_rows=1, connections=2)
    assert [len(reading.task(task)) for task in reading.plan()] == [2, 3]

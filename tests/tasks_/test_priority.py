"""Tasks of a higher priority are claimed first, and those of one priority in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from streams.errors import UnknownPartition
from streams.models import Partition, Topic
from streams.operate.topics import grow
from streams.testing import drain
from tests.consuming import Process
from tests.hostapp.models import Handled

pytestmark = pytest.mark.django_db(transaction=True)


def in_order() -> list[str]:
    rows = Handled.objects.filter(topic="note").order_by("pk")
    return list(rows.values_list("value", flat=True))


def test_tasks_run_by_their_priority(use_tasks: Callable[..., Any]) -> None:
    work = use_tasks(QUEUES=["default"])
    for priority in (0, -10, 100, 10, -100, 0):
        work.note.using(priority=priority).enqueue(str(priority))
    drain()
    assert in_order() == ["100", "10", "0", "0", "-10", "-100"]


def test_what_comes_later_with_a_higher_priority_is_claimed_next(
    use_tasks: Callable[..., Any],
) -> None:
    work = use_tasks(QUEUES=["default"])
    for number in range(30):
        work.note.enqueue(str(number))
    process = Process("tasks")
    process.poller.step()
    process.worker.step()
    begun = len(in_order())
    assert 0 < begun < 30
    work.note.using(priority=5).enqueue("urgent")
    process.run_until_idle()
    assert in_order()[begun] == "urgent"
    assert in_order() == [*map(str, range(begun)), "urgent", *map(str, range(begun, 30))]


def test_a_queue_without_priorities_has_one_partition(work: Any) -> None:
    work.note.enqueue("1")
    assert Partition.objects.count() == 1


def test_a_priority_that_was_used_before_costs_no_statement(work: Any) -> None:
    work.note.using(priority=7).enqueue("1")
    work.note.using(priority=7).enqueue("1")
    with CaptureQueriesContext(connection) as seen:
        work.note.using(priority=7).enqueue("2")
    assert len(seen) == 1


def test_a_new_priority_outlives_a_rollback(work: Any) -> None:
    """Nobody may wait for the transaction that has needed it first."""
    work.note.enqueue("0")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        work.note.using(priority=7).enqueue("lost")
        raise ZeroDivisionError
    work.note.using(priority=7).enqueue("kept")
    drain()
    assert in_order() == ["kept", "0"]


def test_a_topic_with_a_number_apart_grows_by_the_lowest_free_ones(work: Any) -> None:
    from streams import send

    work.note.using(priority=-2).enqueue("1")
    topic = Topic.objects.get(name="tasks.default")
    assert grow(topic, 4, "default") == 2
    numbers = Partition.objects.filter(topic=topic).order_by("number")
    assert list(numbers.values_list("number", flat=True)) == [0, 1, 2, 3]
    with pytest.raises(UnknownPartition):
        send("tasks.default", partition=998)

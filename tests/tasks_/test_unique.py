"""A unique task is enqueued once: for a time, or until it starts or has ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from streams.contrib.tasks import work as attempts
from streams.contrib.tasks.compat import task_backends
from streams.deliver.reading import Reading
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, DeadMessage, DedupKey, UtcNow
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, registered
from tests.hostapp.models import Handled
from tests.sessions import Threads

pytestmark = pytest.mark.django_db(transaction=True)


def interrupt(*about: Any) -> None:
    raise KeyboardInterrupt


def noted() -> list[str]:
    return sorted(Handled.objects.filter(topic="note").values_list("value", flat=True))


def test_a_duplicate_has_the_result_of_the_first(work: Any) -> None:
    first, second, other = work.sync.enqueue(1), work.sync.enqueue(1), work.sync.enqueue(2)
    assert (first.duplicate, second.duplicate, other.duplicate) == (False, True, False)
    assert second.id == first.id != other.id
    drain()
    assert noted() == ["sync 1", "sync 2"]
    second.refresh()
    assert second.return_value == 1


def test_a_task_that_has_ended_may_be_enqueued_again(work: Any) -> None:
    work.sync.enqueue(1)
    drain()
    assert not work.sync.enqueue(1).duplicate
    work.sync.enqueue(2, wrong=True)
    drain()  # both attempts: it has failed
    assert not work.sync.enqueue(2, wrong=True).duplicate


def claimed(task: Any) -> tuple[Any, Any]:
    """Enqueue the task in a group whose operator allows no retries; return its claim, too."""
    task.enqueue(0)
    drain()
    ConsumerGroup.objects.update(max_retries=0)
    result = task.enqueue(1)
    sequence("default")
    delivery = Process("tasks").claim()
    delivery.start(timedelta(minutes=1))
    return result, delivery


def expire() -> None:
    """Let the sweep write the dead letter of what a process that died has claimed."""
    advance(LONG_AFTER)
    sweep("default")
    assert DeadMessage.objects.count() == 1


@pytest.mark.parametrize("name", ["sync", "refresh"])
def test_a_task_whose_dead_letter_others_have_written_may_be_enqueued_again(
    use_tasks: Callable[..., Any], name: str
) -> None:
    task = getattr(use_tasks(QUEUES=["default"]), name)
    result, _delivery = claimed(task)
    expire()
    result.refresh()
    assert result.status == "FAILED"
    assert not task.enqueue(1).duplicate


@pytest.mark.parametrize("name", ["sync", "refresh"])
def test_a_task_that_began_before_others_wrote_its_dead_letter_may_be_enqueued_again(
    use_tasks: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = getattr(use_tasks(QUEUES=["default"]), name)
    result, delivery = claimed(task)
    monkeypatch.setattr(attempts._Attempt, "_free", interrupt)  # right after it has its row
    for (message,) in Reading(delivery, registered("tasks.default", "tasks")).calls(1):
        with pytest.raises(KeyboardInterrupt):
            attempts.run_task(message)
    expire()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert not task.enqueue(1).duplicate


def test_a_window_goes_on_after_a_dead_letter_that_others_have_written(
    use_tasks: Callable[..., Any],
) -> None:
    task = use_tasks(QUEUES=["default"]).once_in_a_window
    claimed(task)
    expire()
    assert task.enqueue(1).duplicate


def test_a_task_that_waits_for_its_next_attempt_is_still_unique(work: Any) -> None:
    first = work.sync.enqueue(1, wrong=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "delay_of", lambda *about: timedelta(hours=1))
        drain()
    first.refresh()
    assert first.status == "READY"
    assert work.sync.enqueue(1, wrong=True).duplicate
    advance(timedelta(hours=1))
    assert drain().dead == 1  # the retry has not met its own key


def test_a_rolled_back_task_leaves_the_way_free(work: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        work.sync.enqueue(1)
        raise ZeroDivisionError
    assert not work.sync.enqueue(1).duplicate


@pytest.mark.mysql
def test_who_is_second_waits_for_the_transaction_of_the_first(
    work: Any, in_thread: Threads
) -> None:
    with transaction.atomic():
        first = work.sync.enqueue(1)
        second = in_thread(work.sync.enqueue, 1)
    assert second.result().id == first.id
    assert second.result().duplicate


def test_a_window_ends_by_time_alone(work: Any) -> None:
    work.once_in_a_window.enqueue(1)
    drain()
    again = work.once_in_a_window.enqueue(1)
    assert (again.duplicate, again.status) == (True, "SUCCESSFUL")
    DedupKey.objects.update(expires_at=UtcNow(timedelta(seconds=-1)))
    assert not work.once_in_a_window.enqueue(1).duplicate


def test_a_task_that_is_unique_until_its_start_may_enqueue_itself(work: Any) -> None:
    work.refresh.enqueue(1, depth=1)
    assert work.refresh.enqueue(1).duplicate  # the function looks at the account alone
    drain()
    assert noted() == ["refresh 1 0", "refresh 1 1"]


def test_many_are_enqueued_by_few_statements(work: Any, django_assert_max_num_queries: Any) -> None:
    backend: Any = task_backends["default"]
    work.add.enqueue(0, 0)
    with django_assert_max_num_queries(5):  # two, and the transaction
        results = backend.enqueue_many(work.add, [((n, 1), {}) for n in range(700)])
    assert drain().done == 701
    assert work.add.get_result(results[699].id).return_value == 700

"""A task whose message is erased has ended, and nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams.chaos.forks import in_fork
from streams.contrib.tasks import work as attempts
from streams.contrib.tasks.batches import end_batches
from streams.contrib.tasks.compat import task_backends
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.queues import NO_LIMIT
from streams.deliver.reading import Reading
from streams.models import DeadMessage, Delivery, RetryMessage, UtcNow
from streams.operate.erasure import DataSubject, erase
from streams.steps.retries import step_retries
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, consume_the_rest, registered
from tests.hostapp.models import Handled

pytestmark = pytest.mark.django_db(transaction=True)

ACCOUNT = 17


def erase_account() -> None:
    erase(DataSubject(path="args.0", value=str(ACCOUNT)), "default", "ann", "asked by letter")


def batch_of(task: Any, **named: Any) -> Any:
    backend: Any = task_backends["default"]
    return backend.enqueue_batch([(task, [ACCOUNT], named)])


def has_failed_and_is_empty() -> bool:
    row = TaskRun.objects.get()
    kept = (row.arguments, row.errors, row.metadata, row.return_value)
    empty: Any = ({"args": [], "kwargs": {}}, [], {}, None)
    return (row.status, kept) == ("FAILED", empty) and row.finished_at is not None


def failed_of_ended(batch: Any) -> int | None:
    """Let the batch end; return how many of its tasks have failed, None if it has not ended."""
    TaskBatch.objects.update(check_at=UtcNow())
    end_batches("default")
    failed: int | None = TaskBatch.objects.get(pk=batch.id).failed
    return failed


def test_a_task_that_waits_for_its_next_attempt_has_failed(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(work.sync, wrong=True)
    with monkeypatch.context() as patch:
        patch.setattr(attempts, "delay_of", lambda *about: timedelta(hours=1))
        drain()
    assert TaskRun.objects.get().status == "READY"
    erase_account()
    assert has_failed_and_is_empty()
    assert failed_of_ended(batch) == 1
    advance(timedelta(hours=1))
    drain()
    assert has_failed_and_is_empty()
    assert DeadMessage.objects.get().error_class.endswith("TaskErased")
    assert Handled.objects.count() == 1
    assert not work.sync.enqueue(ACCOUNT).duplicate


def test_a_task_that_has_not_begun_has_failed_for_its_batch(work: Any) -> None:
    batch = batch_of(work.sync)
    erase_account()
    assert has_failed_and_is_empty()
    assert failed_of_ended(batch) == 1
    drain()
    assert has_failed_and_is_empty()
    assert not Handled.objects.exists()


def test_a_task_that_nobody_counts_gets_no_row(work: Any) -> None:
    work.sync.enqueue(ACCOUNT)
    erase_account()
    drain()
    assert not TaskRun.objects.exists()
    assert DeadMessage.objects.get().error_class.endswith("TaskErased")
    assert not work.sync.enqueue(ACCOUNT).duplicate


def erased_while_it_runs(work: Any) -> Any:
    """Return the batch of a task whose process dies once its message is erased."""
    batch = batch_of(work.die_at_first)
    assert in_fork(lambda: Process("tasks").run_until_idle()) == -9
    erase_account()
    assert TaskRun.objects.get().status == "RUNNING"
    return batch


def test_a_task_whose_process_dies_after_the_erasure_has_failed(
    use_tasks: Callable[..., Any],
) -> None:
    batch = erased_while_it_runs(use_tasks(QUEUES=["default"]))
    consume_the_rest("tasks")
    assert has_failed_and_is_empty()
    assert failed_of_ended(batch) == 1


def test_an_erased_task_has_failed_before_it_is_a_dead_letter(
    use_tasks: Callable[..., Any],
) -> None:
    """Who is killed in between leaves no task behind that never ends."""
    erased_while_it_runs(use_tasks(QUEUES=["default"]))
    advance(LONG_AFTER)
    sweep("default")
    advance(LONG_AFTER)
    delivery, retry = Process("tasks").claim_retry()
    reading = Reading(delivery, registered("tasks.default", "tasks"), retry)
    ((message,),) = reading.calls(1)
    with pytest.raises(attempts.TaskFailed):
        attempts.run_task(message)
    assert has_failed_and_is_empty()


def test_a_task_that_is_buried_after_the_erasure_has_failed(
    use_tasks: Callable[..., Any],
) -> None:
    batch = erased_while_it_runs(use_tasks(QUEUES=["default"]))
    advance(LONG_AFTER)
    sweep("default")
    RetryMessage.objects.update(attempt=NO_LIMIT + 2, due_at=UtcNow())
    Delivery.objects.update(started_at=UtcNow())  # as that of a last attempt
    assert step_retries("default") == 1
    assert has_failed_and_is_empty()
    assert failed_of_ended(batch) == 1


def test_what_ran_during_an_erasure_is_erased_by_the_next(use_tasks: Callable[..., Any]) -> None:
    erased_while_it_runs(use_tasks(QUEUES=["default"]))
    TaskRun.objects.update(status="READY")  # as one that has failed, with attempts left
    erase_account()
    assert has_failed_and_is_empty()

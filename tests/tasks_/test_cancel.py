"""A task that waits can be cancelled, and does not run; one that runs is told so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from streams.contrib.tasks.compat import task_backends
from streams.contrib.tasks.work import TaskCancelled
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Message
from streams.testing import advance, drain
from tests.hostapp.models import Handled
from tests.sessions import Threads

pytestmark = pytest.mark.django_db(transaction=True)


def cancel(result: Any) -> str:
    backend: Any = task_backends["default"]
    said: str = backend.cancel(result.id)
    return said


def ran() -> bool:
    return Handled.objects.exists()


@pytest.mark.parametrize("where", ["inbox", "log", "delayed"])
def test_a_task_that_waits_is_cancelled(work: Any, where: str) -> None:
    task = work.note
    if where == "delayed":
        task = task.using(run_after=timezone.now() + timedelta(hours=1))
    result = task.enqueue("1")
    if where == "log":
        sequence("default")
    assert cancel(result) == "cancelled"
    assert Message.objects.exists() == (where != "delayed")
    advance(timedelta(hours=1))
    drain()
    assert not ran()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TaskCancelled)
    assert not DeadMessage.objects.exists()
    assert cancel(result) == "finished"


def test_a_task_that_waits_for_its_next_attempt_is_cancelled(work: Any) -> None:
    result = work.fail_until.enqueue(3)
    drain()
    assert cancel(result) == "cancelled"
    advance(timedelta(seconds=5))
    assert drain().done == 1  # it is passed over
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 1, 2)
    assert not DeadMessage.objects.exists()


def test_a_task_that_runs_is_told_and_ends_itself(work: Any) -> None:
    result = work.until_cancelled.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert Handled.objects.get().value == "running"
    assert not DeadMessage.objects.exists()


def test_a_cancellation_that_is_rolled_back_changes_nothing(work: Any) -> None:
    result = work.note.enqueue("1")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert cancel(result) == "cancelled"
        raise ZeroDivisionError
    drain()
    assert ran()


@pytest.mark.mysql
def test_a_worker_waits_for_a_cancellation_that_is_not_committed(
    work: Any, in_thread: Threads
) -> None:
    result = work.note.enqueue("1")
    with transaction.atomic():
        assert cancel(result) == "cancelled"
        drained = in_thread(drain)
    assert drained.result().done == 1
    assert not ran()


def test_an_id_of_nobody_is_unknown(work: Any) -> None:
    result = work.note.enqueue("1")
    backend: Any = task_backends["default"]
    assert backend.cancel("x") == backend.cancel(result.id[:-1] + "-") == "unknown"


def test_a_cancelled_task_may_be_enqueued_again(work: Any) -> None:
    assert cancel(work.sync.enqueue(1)) == "cancelled"
    assert not work.sync.enqueue(1).duplicate

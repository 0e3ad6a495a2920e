"""A task that waits can be cancelled, and does not run; one that runs is told so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from streams.consume.outcome.dead_letter import redrive
from streams.contrib.tasks import slots
from streams.contrib.tasks.compat import task_backends
from streams.contrib.tasks.models import TaskRun, TaskSlot
from streams.contrib.tasks.record import Record
from streams.contrib.tasks.work import TaskCancelled
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, DeadMessage, Message, RetryMessage
from streams.operate.replay import spans, start
from streams.operate.target import Target
from streams.testing import advance, drain
from tests.faults import Once
from tests.hostapp.models import Handled
from tests.processes import PATIENCE_SECONDS
from tests.proxy import Proxy
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


def fails_again_and_waits_for_a_slot(work: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a task that has failed and was redriven, while all slots of its limit are taken."""
    result = work.alone.enqueue(True)
    drain()
    assert redrive(DeadMessage.objects.get())
    Handled.objects.all().delete()
    TaskSlot.objects.update(token=99)
    monkeypatch.setattr(slots.HeldSlot, "_is_held", lambda self, place: True)
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 2)
    return result


def passed_over(result: Any, attempts: int) -> bool:
    """Tell whether the cancelled task does not run, whatever comes; it is no dead letter."""
    letters = DeadMessage.objects.waiting()
    before = Handled.objects.count()
    TaskSlot.objects.update(token=0)
    for _look in range(3):
        advance(timedelta(minutes=5))
        drain()
    result.refresh()
    assert result.errors[-1].exception_class is TaskCancelled
    assert not RetryMessage.objects.exists()
    found = (result.status, result.attempts, letters.exists(), Handled.objects.count())
    return found == ("FAILED", attempts, False, before)


def test_a_redriven_task_that_waits_for_a_slot_is_cancelled(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fails_again_and_waits_for_a_slot(work, monkeypatch)
    assert cancel(result) == "cancelled"
    assert passed_over(result, attempts=2)


def replay(offset: int = 0) -> None:
    group = ConsumerGroup.objects.get(topic__name="tasks.default")
    first, end = Target.parse(str(offset)), Target.parse(str(offset + 1))
    start(group, spans(group, first, end, "default"), "default")


def test_a_replayed_task_that_postpones_itself_is_cancelled(work: Any) -> None:
    result = work.wait_for.enqueue(1)
    drain()
    TaskRun.objects.update(metadata={"asked": -2})
    replay()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 1)
    assert cancel(result) == "cancelled"
    assert passed_over(result, attempts=1)
    assert TaskRun.objects.get().metadata == {"asked": -1}


def test_a_replay_does_not_run_what_was_cancelled_while_it_waited(work: Any) -> None:
    result = work.fail_until.enqueue(3)
    drain()
    assert cancel(result) == "cancelled"
    advance(timedelta(seconds=5))
    drain()
    replay()
    assert passed_over(result, attempts=1)


def test_a_replay_runs_what_was_told_and_has_stopped(work: Any) -> None:
    result = work.until_cancelled.enqueue()
    drain()
    replay()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 2)
    assert Handled.objects.count() == 2


def when_found(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call ``act`` when the next attempt has read the row of its task, and has not begun."""
    find = Record.find
    acts = [act]

    def find_and_act(self: Record) -> bool:
        found = find(self)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(Record, "find", find_and_act)


def cancel_when_found(monkeypatch: pytest.MonkeyPatch, in_thread: Threads, result: Any) -> None:
    """Let the next attempt come, and cancel its task from another connection before it begins."""
    advance(timedelta(seconds=5))
    said: list[str] = []
    when_found(monkeypatch, lambda: said.append(in_thread(cancel, result).result()))
    drain()
    assert said == ["cancelled"]


@pytest.mark.mysql
def test_a_task_that_is_cancelled_just_before_it_begins_does_not_run(
    work: Any, monkeypatch: pytest.MonkeyPatch, in_thread: Threads
) -> None:
    result = work.fail_until.enqueue(3)
    drain()
    cancel_when_found(monkeypatch, in_thread, result)
    assert passed_over(result, attempts=1)


@pytest.mark.mysql
def test_a_task_that_is_cancelled_just_before_it_waits_for_a_slot_does_not_run(
    work: Any, monkeypatch: pytest.MonkeyPatch, in_thread: Threads
) -> None:
    result = fails_again_and_waits_for_a_slot(work, monkeypatch)
    cancel_when_found(monkeypatch, in_thread, result)
    assert passed_over(result, attempts=2)


@pytest.mark.mysql
def test_a_start_waits_for_a_cancellation_that_commits_late(
    work: Any, monkeypatch: pytest.MonkeyPatch, in_thread: Threads
) -> None:
    result = work.fail_until.enqueue(3)
    drain()
    advance(timedelta(seconds=5))
    locked, begins = threading.Event(), threading.Event()

    def cancel_late() -> str:
        with transaction.atomic():
            said = cancel(result)
            locked.set()
            assert begins.wait(PATIENCE_SECONDS)
        return said

    def begin(work: Callable[[], Any]) -> Any:
        begins.set()
        return work()

    said: list[Future[str]] = []

    def lock() -> None:
        said.append(in_thread(cancel_late))
        assert locked.wait(PATIENCE_SECONDS)

    when_found(monkeypatch, lock)
    with connection.execute_wrapper(Once("SET `status` = 'RUNNING'", begin)):
        drain()
    assert said[0].result() == "cancelled"
    assert passed_over(result, attempts=1)


@pytest.mark.mysql
@pytest.mark.parametrize("begun", [False, True])
def test_a_cancellation_whose_reply_is_lost_is_one(work: Any, proxied: Proxy, begun: bool) -> None:
    result = work.fail_until.enqueue(3)
    if begun:
        drain()
    proxied.lose_reply_to(b"COMMIT")
    assert cancel(result) == "cancelled"
    assert passed_over(result, attempts=int(begun))


def test_an_id_of_nobody_is_unknown(work: Any) -> None:
    result = work.note.enqueue("1")
    backend: Any = task_backends["default"]
    another = result.id[:-1] + ("_" if result.id[-1] == "-" else "-")
    assert backend.cancel("x") == backend.cancel(another) == "unknown"


def test_a_cancelled_task_may_be_enqueued_again(work: Any) -> None:
    assert cancel(work.sync.enqueue(1)) == "cancelled"
    assert not work.sync.enqueue(1).duplicate

"""No more tasks with one key run at the same time than their limit says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streams.chaos.forks import in_fork
from streams.contrib.tasks import slots
from streams.contrib.tasks.models import TaskRun, TaskSlot
from streams.models import DeadMessage, RetryMessage, SystemConfig, UtcNow
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, consume_the_rest
from tests.hostapp.models import Handled
from tests.processes import PATIENCE_SECONDS, wait_for
from tests.sessions import Threads

pytestmark = pytest.mark.django_db(transaction=True)


def take_all(**values: Any) -> None:
    TaskSlot.objects.update(token=99, **values)


def test_a_task_waits_while_all_slots_are_taken(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    work.alone.enqueue()
    drain()
    take_all()
    monkeypatch.setattr(slots.HeldSlot, "_is_held", lambda self, place: True)
    result = work.alone.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 0)
    TaskSlot.objects.update(token=0)
    advance(timedelta(seconds=5))
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


def test_a_slot_is_free_after_a_success_and_after_a_failure(work: Any) -> None:
    for wrong in (False, True, True):
        work.alone.enqueue(wrong)
        drain()
    assert DeadMessage.objects.count() == 2
    assert set(TaskSlot.objects.values_list("token", flat=True)) == {0}


def test_each_value_of_the_key_has_slots_of_its_own(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.limited.enqueue(1)
    drain()
    assert TaskSlot.objects.count() == 2
    take_all()
    monkeypatch.setattr(slots.HeldSlot, "_is_held", lambda self, place: True)
    work.limited.enqueue(2)
    work.limited.enqueue(1)
    assert drain().done == 1
    work.limited.enqueue(account=3)
    work.limited.enqueue(3)
    drain()
    assert TaskSlot.objects.values("key_hash").distinct().count() == 3


def test_the_slot_of_a_process_that_died_is_free_once_its_delivery_has_ended(
    use_tasks: Callable[..., Any],
) -> None:
    work = use_tasks(QUEUES=["default"])
    died, after = work.alone_and_dies.enqueue("died"), work.alone_and_dies.enqueue("died")
    assert in_fork(lambda: Process("tasks").run_until_idle()) == -9
    assert TaskSlot.objects.exclude(token=0).count() == 1
    advance(LONG_AFTER)
    sweep("default")
    # The one that died comes back much later: the other one does not wait for it.
    RetryMessage.objects.filter(offset=0).update(due_at=UtcNow(timedelta(days=1)))
    drain()
    after.refresh()
    assert after.status == "SUCCESSFUL"
    advance(timedelta(days=1))
    consume_the_rest("tasks")
    for result in (died, after):
        result.refresh()
        assert result.status == "SUCCESSFUL"
    assert not TaskSlot.objects.exclude(token=0).exists()


def test_a_redriven_task_that_waits_for_a_slot_has_all_its_attempts(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams.consume.outcome.dead_letter import redrive

    result = work.alone.enqueue(True)
    drain()
    assert redrive(DeadMessage.objects.get())
    take_all()
    with monkeypatch.context() as patch:
        patch.setattr(slots.HeldSlot, "_is_held", lambda self, place: True)
        drain()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 2)
    TaskSlot.objects.update(token=0)
    advance(timedelta(seconds=5))
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 4)


def test_a_task_whose_key_cannot_be_told_fails_as_often_as_it_may(work: Any) -> None:
    result = work.limited_by_id.enqueue({})
    for _attempt in range(3):
        drain()
        advance(timedelta(seconds=5))
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 2)
    assert result.errors[0].exception_class is KeyError
    assert not RetryMessage.objects.exists()
    assert not TaskSlot.objects.exists()


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": True}, {"limit_key": "one"}, {"limit": 1, "limit_key": "no"}]
)
def test_a_wrong_limit_is_refused(work: Any, wrong: dict[str, Any]) -> None:
    from streams.contrib.tasks.compat import InvalidTaskError

    with pytest.raises(InvalidTaskError):
        replace(work.add, **wrong)


def work_once() -> None:
    """Claim and handle what is there once, as a worker does, and not again what comes back."""
    Process("tasks").worker.step()


def most_at_once(account: str) -> int:
    """Return how many ran at the same time, by the notes of when they began and ended."""
    spans = [value.split() for value in Handled.objects.values_list("value", flat=True)]
    events = [(float(begun), 1) for key, _number, begun, _ended in spans if key == account]
    events += [(float(ended), -1) for key, _number, _begun, ended in spans if key == account]
    running, most = 0, 0
    for _at, change in sorted(events):
        running += change
        most = max(most, running)
    return most


def test_as_many_run_at_once_as_the_limit_says_and_the_next_one_waits(
    use_tasks: Callable[..., Any], in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim has one task here: else the thread of the first one would have them all."""
    work = use_tasks(QUEUES=["default"])
    SystemConfig.objects.create(name="consumerBatchSize", value=1)
    monkeypatch.setattr(slots, "WAIT", (0.0, 0.0))
    inside, end = threading.Semaphore(0), threading.Event()

    def stay() -> None:
        inside.release()
        assert end.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(work, "while_in_two_at_once", stay)
    results = [work.two_at_once.enqueue() for _task in range(3)]

    def serve() -> None:
        while not end.is_set():  # the first look may find the cursor locked by the other's claim
            drain()

    done = [in_thread(serve) for _worker in range(2)]
    try:
        assert inside.acquire(timeout=PATIENCE_SECONDS)
        assert inside.acquire(timeout=PATIENCE_SECONDS)
        assert TaskSlot.objects.exclude(token=0).count() == 2
        in_thread(work_once).result(PATIENCE_SECONDS)
        assert not inside.acquire(blocking=False)
        assert TaskRun.objects.filter(status="RUNNING").count() == 2
    finally:
        end.set()
    for one in done:
        one.result(PATIENCE_SECONDS)
    while RetryMessage.objects.exists():
        drain()
    for result in results:
        result.refresh()
        assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


@pytest.mark.mysql
def test_of_many_threads_no_more_than_the_limit_run_a_task(
    use_tasks: Callable[..., Any], in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = use_tasks(QUEUES=["default"])
    monkeypatch.setattr(slots, "WAIT", (0.0, 0.0))
    for number in range(24):
        work.limited.enqueue(number % 2, number)
    done = [in_thread(drain) for _worker in range(8)]
    for one in done:
        one.result()
    while RetryMessage.objects.exists():
        drain()
    assert TaskRun.objects.filter(status="SUCCESSFUL").count() == 24
    assert max(most_at_once("0"), most_at_once("1")) <= 2


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
@pytest.mark.timeout(600)
def test_twenty_workers_and_kills_never_exceed_a_limit(
    use_tasks: Callable[..., Any], spawn: Any, ems_settings: Callable[..., None]
) -> None:
    work = use_tasks(QUEUES=["default"])
    ems_settings(POLL_SECONDS=0.1, RETRY_DELAYS=[0.1])
    for number in range(120):
        work.limited.enqueue(number % 2, number)
    quick = "from streams.contrib.tasks import slots; slots.WAIT = (0.05, 0.2);"
    run = "from django.core.management import call_command;"
    code = f"{quick}{run}call_command('ems_consume', '--no-supervisor', threads=5)"
    running = [spawn(code) for _process in range(4)]
    for _kill in range(8):
        enough = Handled.objects.count() + 3
        wait_for(lambda: Handled.objects.count() > enough)  # noqa: B023 - in this round
        running.pop(0).kill()
        running.append(spawn(code))
    wait_for(lambda: TaskRun.objects.filter(status="SUCCESSFUL").count() == 120)
    assert max(most_at_once("0"), most_at_once("1")) <= 2

"""Whoever is killed, no task is lost, and only one that ran is begun again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from streams.chaos.forks import in_fork
from streams.consume.outcome.dead_letter import redrive
from streams.contrib.tasks.compat import task_backends
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.work import TaskCancelled, run_task
from streams.deliver.reading import Reading
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, DeadMessage, Delivery, RetryMessage
from streams.observe.audit.walk import audit
from streams.operate.replay import spans, start
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, consume_the_rest, registered
from tests.faults import Guillotine, strides
from tests.hostapp.models import Handled, Order
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

ONE_QUEUE = {"QUEUES": ["default"]}


def consume_until_killed(point: int) -> None:
    Guillotine(point).install()
    Process("tasks").run_until_idle()


@strides(17)
@pytest.mark.timeout(400)
def test_a_consumer_may_be_killed_between_any_two_statements(
    use_tasks: Callable[..., Any], stride: int
) -> None:
    work = use_tasks(**ONE_QUEUE)
    for point in count(1, stride):
        # Three that may run twice, one that happens once, one that fails in any case.
        plain = [work.note.enqueue(f"{point}-{n}") for n in range(3)]
        once = work.order_once.enqueue(f"{point}")
        wrong = work.fail.enqueue("no")
        status = in_fork(partial(consume_until_killed, point))
        assert status in (0, -9)
        consume_the_rest("tasks")
        for result in (*plain, once, wrong):
            result.refresh()
        assert [one.status for one in (*plain, once)] == ["SUCCESSFUL"] * 4
        assert wrong.status == "FAILED"
        times = Counter(Handled.objects.filter(topic="note").values_list("value", flat=True))
        mine = sorted(times[f"{point}-{n}"] for n in range(3))
        assert mine in ([1, 1, 1], [1, 1, 2])  # at most the one that ran
        assert Order.objects.filter(number=str(point)).count() == 1
        if status == 0:
            break
    assert point > 30  # it did die at many places
    assert DeadMessage.objects.count() == TaskRun.objects.filter(status="FAILED").count()
    assert not RetryMessage.objects.exists()
    assert not Delivery.objects.open().exists()
    assert audit("default") == []


def test_a_task_that_kills_its_process_has_failed_and_its_neighbours_run(
    use_tasks: Callable[..., Any], ems_settings: Callable[..., None]
) -> None:
    ems_settings(RETRY_DELAYS=[0.01])
    work = use_tasks(**ONE_QUEUE)
    before, killer, after = (
        work.add.enqueue(1, 1),
        work.die_at_first.enqueue("died"),
        work.add.enqueue(2, 2),
    )
    assert in_fork(lambda: Process("tasks").run_until_idle()) == -9
    consume_the_rest("tasks")
    for result in (before, killer, after):
        result.refresh()
    assert (before.return_value, after.return_value) == (2, 4)
    assert (before.attempts, killer.attempts, after.attempts) == (1, 1, 1)
    assert killer.status == "FAILED"
    assert killer.errors[0].exception_class.__name__ == "ProcessDied"
    assert DeadMessage.objects.get().error_class.endswith("ProcessDied")


def test_a_task_with_attempts_left_runs_again_after_the_death_of_its_process(
    use_tasks: Callable[..., Any],
) -> None:
    work = use_tasks(**ONE_QUEUE)
    result = work.die_once.enqueue()
    assert in_fork(lambda: Process("tasks").run_until_idle()) == -9
    result.refresh()
    assert (result.status, result.attempts) == ("RUNNING", 1)
    consume_the_rest("tasks")
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2)


@pytest.mark.parametrize("dies", [True, False])
def test_the_attempt_after_one_that_was_cancelled_is_told_too(
    use_tasks: Callable[..., Any], dies: bool
) -> None:
    work = use_tasks(**ONE_QUEUE)
    result = work.told_too_late.enqueue(dies)
    for round_ in (1, 2):
        assert in_fork(lambda: Process("tasks").run_until_idle()) == (-9 if dies else 0)
        consume_the_rest("tasks")
        result.refresh()
        assert (result.status, result.attempts) == ("FAILED", 2 * round_)
        assert result.errors[-1].exception_class is TaskCancelled
        notes = Handled.objects.order_by("id").values_list("value", flat=True)
        assert list(notes) == ["False", "True"] * round_
        assert not DeadMessage.objects.exists()
        # A replay is another round, and begins without the mark.
        group = ConsumerGroup.objects.get(topic__name="tasks.default")
        start(group, spans(group, Target.parse("0"), Target.parse("1"), "default"), "default")


def test_an_attempt_that_has_lost_its_lease_does_not_write_its_end(
    use_tasks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process runs the task by then: what that one writes counts."""
    from streams.contrib.tasks import record as records

    work = use_tasks(**ONE_QUEUE)
    result = work.order_once.enqueue("1")
    end = records.Record.end

    def late(self: Any, *args: Any) -> None:
        TaskRun.objects.update(token=1)  # as another attempt does that has begun
        end(self, *args)

    monkeypatch.setattr(records.Record, "end", late)
    Process("tasks").run_until_idle()
    assert not Order.objects.exists()
    result.refresh()
    assert result.status == "RUNNING"


def expire() -> None:
    """Let the claims of the dead expire; their messages come again."""
    advance(LONG_AFTER)
    sweep("default")
    advance(LONG_AFTER)


def again(how: str) -> None:
    """Begin another round of the only message."""
    group = ConsumerGroup.objects.get(topic__name="tasks.default")
    first, end = Target.parse("0"), Target.parse("1")
    if how == "replay":
        start(group, spans(group, first, end, "default"), "default")
    else:
        Reset(group, towards(first), "default", force=True).run()


@pytest.mark.parametrize("how", ["replay", "reset"])
@pytest.mark.parametrize("name", ["note", "alone"])
def test_a_round_whose_first_attempt_dies_before_the_task_begins_runs_it(
    use_tasks: Callable[..., Any], name: str, how: str
) -> None:
    work = use_tasks(**ONE_QUEUE)
    result = getattr(work, name).enqueue(*(["1"] if name == "note" else []))
    drain()
    again(how)
    assert Process("tasks").claim().attempt == 1
    expire()
    assert RetryMessage.objects.get().attempt == 2
    assert drain().done == 1
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 2)
    assert Handled.objects.count() == 2


def test_a_redriven_task_whose_process_dies_before_it_begins_has_all_its_attempts(
    use_tasks: Callable[..., Any],
) -> None:
    work = use_tasks(**ONE_QUEUE)
    result = work.sync.enqueue(1, wrong=True)
    drain()
    assert redrive(DeadMessage.objects.get())
    delivery, _retry = Process("tasks").claim_retry()
    delivery.start(timedelta(minutes=1))
    expire()
    assert RetryMessage.objects.get().attempt == 2
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 4)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_task_that_has_ended_in_a_round_is_not_run_again_in_it(
    use_tasks: Callable[..., Any], rounds: int
) -> None:
    """Its process dies after the end of the task, and before the delivery is settled."""
    work = use_tasks(**ONE_QUEUE)
    result = work.note.enqueue("1")
    if rounds == 2:
        drain()
        again("replay")
    sequence("default")
    delivery = Process("tasks").claim()
    for (message,) in Reading(delivery, registered("tasks.default", "tasks")).calls(1):
        run_task(message)
    expire()
    assert RetryMessage.objects.get().attempt == 2
    assert drain().done == 1
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", rounds)
    assert Handled.objects.count() == rounds


def test_a_copy_of_a_message_says_of_no_delivery(use_tasks: Callable[..., Any]) -> None:
    """A middleware may hand one over: what has ended is then settled in any round, as it seems."""
    work = use_tasks(**ONE_QUEUE)
    work.note.enqueue("1")
    sequence("default")
    delivery = Process("tasks").claim()
    for (message,) in Reading(delivery, registered("tasks.default", "tasks")).calls(1):
        run_task(copy(message))
    expire()
    assert drain().done == 1
    assert Handled.objects.count() == 1


KILLS, PROCESSES, THREADS = 200, 3, 2


def began() -> Counter[str]:
    values = Handled.objects.filter(value__startswith="begin").values_list("value", flat=True)
    return Counter(values)


def more_began_than(number: int) -> bool:
    return sum(began().values()) > number


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
@pytest.mark.timeout(3600)
def test_of_two_hundred_kills_none_loses_a_task_and_only_running_ones_are_begun_again(
    use_tasks: Callable[..., Any], spawn: Any, ems_settings: Callable[..., None]
) -> None:
    """Each round enqueues a batch, and kills the oldest of the processes while tasks run."""
    work = use_tasks(**ONE_QUEUE)
    ems_settings(POLL_SECONDS=0.1, RETRY_DELAYS=[0.1])
    backend: Any = task_backends["default"]
    words = ["ems_consume", "--no-supervisor", "--threads", str(THREADS)]
    running = [spawn.command(*words) for _process in range(PROCESSES)]
    numbers = count()
    results, batches = [], []
    for _kill in range(KILLS):
        enough = sum(began().values()) + 3
        calls: list[Any] = [(work.begin_and_end, [next(numbers)], {}) for _task in range(4)]
        batches.append(backend.enqueue_batch(calls, on_success=work.batch_done).id)
        results += [work.begin_and_end.enqueue(next(numbers)) for _task in range(4)]
        wait_for(partial(more_began_than, enough))
        running.pop(0).kill()
        running.append(spawn.command(*words))
    follows = TaskRun.objects.filter(path=f"{work.__name__}.batch_done")
    wait_for(lambda: follows.exclude(finished_at=None).count() == KILLS, timeout=300)
    tasks = TaskRun.objects.filter(path=f"{work.__name__}.begin_and_end")
    wait_for(lambda: tasks.filter(status="SUCCESSFUL").count() == 8 * KILLS, timeout=300)
    times = began()
    assert len(times) == 8 * KILLS  # none is lost
    assert sum(times.values()) - len(times) <= KILLS * THREADS  # only those that ran
    attempts = dict(tasks.values_list("message_id", "attempts"))
    assert sum(attempts.values()) <= 8 * KILLS + KILLS * THREADS
    assert sorted(row.arguments["args"][0] for row in follows) == batches
    assert not TaskBatch.objects.filter(finished_at=None).exists()
    for child in running:
        child.terminate()

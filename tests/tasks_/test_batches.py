"""A batch ends once, when all its tasks have ended, whoever was killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from streams.chaos.forks import in_fork
from streams.contrib.tasks.batches import end_batches
from streams.contrib.tasks.compat import InvalidTaskError, TaskResultDoesNotExist, task_backends
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.prune import old_tasks
from streams.errors import MixedShards
from streams.models import Message, UtcNow
from streams.testing import advance, drain
from tests.consuming import Process, consume_the_rest
from tests.faults import Guillotine
from tests.hostapp.models import Handled
from tests.sessions import Threads

pytestmark = pytest.mark.django_db(transaction=True)


def noted() -> list[str]:
    return sorted(Handled.objects.values_list("value", flat=True))


def backend() -> Any:
    return task_backends["default"]


def two(work: Any, last: Any = None, **follows: Any) -> Any:
    calls: list[Any] = [(work.add, [1, 1], {}), last or (work.add, [2, 2], {})]
    return backend().enqueue_batch(
        calls, on_success=work.batch_done, on_failure=work.batch_failed, **follows
    )


def end() -> int:
    TaskBatch.objects.update(check_at=UtcNow())
    return end_batches("default")


def test_a_batch_ends_when_its_last_task_has_ended(work: Any) -> None:
    later = work.add.using(run_after=timezone.now() + timedelta(hours=1))
    batch = two(work, (later, [2, 2], {}))
    assert end() == 0
    drain()
    assert backend().get_batch(batch.id).ended == 1
    assert end() == 0
    advance(timedelta(hours=1))
    drain()
    assert backend().get_batch(batch.id).ended == 2
    assert end() == 1
    assert end() == 0
    drain()
    assert noted() == [f"batch {batch.id} done"]
    assert backend().get_batch(batch.id).finished_at is not None


def test_a_batch_with_a_failed_task_has_failed(work: Any) -> None:
    batch = two(work, (work.fail, ["no"], {}))
    drain()
    assert end() == 1
    drain()
    assert noted() == [f"batch {batch.id} failed"]
    assert backend().get_batch(batch.id).failed == 1


def test_a_batch_that_is_rolled_back_was_never_there(work: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        two(work)
        raise ZeroDivisionError
    assert not TaskBatch.objects.exists()
    assert drain().done == 0


def test_a_batch_of_nothing_is_refused(work: Any) -> None:
    with pytest.raises(InvalidTaskError):
        backend().enqueue_batch([])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("follows", ["on_success", "on_failure"])
def test_a_batch_whose_end_is_on_another_database_is_refused(
    work: Any, ems_settings: Callable[..., None], follows: str
) -> None:
    """Its end and what follows are one transaction: it could never come."""
    ems_settings(SHARDS={"tasks.emails": "other"})
    elsewhere = {follows: work.batch_done.using(queue_name="emails")}
    with pytest.raises(MixedShards):
        backend().enqueue_batch([(work.add, [1, 1], {})], **elsewhere)
    assert not TaskBatch.objects.exists()
    assert not Message.objects.exists()
    there: Any = (work.add.using(queue_name="emails"), [1, 1], {})
    backend().enqueue_batch([there], **elsewhere)  # all is there
    drain()
    TaskBatch.objects.using("other").update(check_at=UtcNow())
    assert end_batches("other") == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_batch_is_looked_for_on_its_own_database(
    work: Any, ems_settings: Callable[..., None]
) -> None:
    """Two databases give their batches the same ids."""
    here = two(work)
    ems_settings(SHARDS={"tasks.emails": "other"})
    there: Any = (work.add.using(queue_name="emails"), [1, 1], {})
    batch = backend().enqueue_batch([there])
    TaskBatch.objects.using("other").update(id=here.id)
    assert (here.database, batch.database) == ("default", "other")
    with pytest.raises(MixedShards, match="using="):
        backend().get_batch(here.id)
    assert [backend().get_batch(here.id, using).total for using in ("default", "other")] == [2, 1]
    with pytest.raises(TaskResultDoesNotExist):
        backend().get_batch(here.id + 1, "other")


def test_a_duplicate_is_no_part_of_a_batch(work: Any) -> None:
    work.sync.enqueue(1)
    batch = two(work, (work.sync, [1], {}))
    assert batch.total == 1
    drain()
    assert end() == 1


def test_the_rows_of_a_batch_are_kept_until_its_end(use_tasks: Callable[..., Any]) -> None:
    work = use_tasks(OPTIONS={"keep_successful": 0, "keep_failed": 0})
    two(work)
    drain()
    assert sum(old_tasks("default")) == 0
    end()
    assert sum(old_tasks("default")) == 3  # its tasks, and itself
    assert not TaskRun.objects.exists()


@pytest.mark.mysql
def test_of_several_steps_one_ends_a_batch(work: Any, in_thread: Threads) -> None:
    two(work)
    drain()
    ended = [in_thread(end_batches, "default") for _step in range(5)]
    assert sum(one.result() for one in ended) == 1
    drain()
    assert len(noted()) == 1


def until_killed(point: int) -> None:
    Guillotine(point).install()
    Process("tasks").run_until_idle()
    end()


def test_a_batch_whose_last_task_and_step_are_killed_ends_once(
    use_tasks: Callable[..., Any],
) -> None:
    work = use_tasks(QUEUES=["default"])
    for point in count(1, 7):
        batch = two(work, (work.note, [f"{point}"], {}))
        status = in_fork(partial(until_killed, point))
        assert status in (0, -9)
        consume_the_rest("tasks")
        end()
        end()
        consume_the_rest("tasks")
        assert Handled.objects.filter(value=f"batch {batch.id} done").count() == 1
        if status == 0:
            break
    assert point > 20

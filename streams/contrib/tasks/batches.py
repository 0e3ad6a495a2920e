"""Enqueues tasks together, and one more when all of them have ended.

Whether all have ended is counted in their rows by a step: no process has to remember it, so a kill
cannot strand a batch. The row of the batch is locked for its end, which comes once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count

from streams.contrib.tasks.compat import (
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from streams.contrib.tasks.envelope import imported
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.names import topic_of
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import MixedShards
from streams.logs import event
from streams.models import UtcNow
from streams.sharding import alias_of
from streams.steps.turns import is_turn

logger = logging.getLogger("streams.maintenance")

STEP = "task-batches"
EVERY = timedelta(seconds=1)
# The most batches of one run, and how long the step leaves one alone: a part of its age.
AT_ONCE = 100
PART, LONGEST = 20, timedelta(seconds=30)

Calls = Sequence[tuple[Any, Sequence[Any], Mapping[str, Any]]]


@dataclass(frozen=True)
class BatchProgress:
    """How far a batch is. ``ended`` counts ``failed``, too. ``database`` is an alias."""

    database: str
    id: int
    total: int
    ended: int
    failed: int
    finished_at: datetime | None


def new_batch(backend: Any, calls: Calls, on_success: Any, on_failure: Any) -> BatchProgress:
    """Enqueue a batch. Raises InvalidTaskError and MixedShards before anything is written."""
    if not calls:
        raise InvalidTaskError("A batch has at least one task.")
    tasks = [task for task, _args, _kwargs in calls]
    tasks += [one for one in (on_success, on_failure) if one is not None]
    for task in tasks:
        backend.validate_task(task)
    # The end of the batch is one transaction with what follows.
    on = {alias_of(topic_of(task.queue_name)) for task in tasks}
    if len(on) > 1:
        raise MixedShards
    (using,) = on
    with transaction.atomic(using=using):
        row = TaskBatch.objects.using(using).create(
            backend=backend.alias,
            total=0,
            on_success=_named(on_success),
            on_failure=_named(on_failure),
        )
        results = backend.send_all(calls, batch=str(row.pk))
        # A duplicate of a unique task is a part of no batch, or of another one.
        total = sum(not result.duplicate for result in results)
        TaskBatch.objects.using(using).filter(pk=row.pk).update(total=total)
    return BatchProgress(using, row.pk, total, 0, 0, None)


def batch_of(batch_id: int, using: str) -> BatchProgress:
    row = TaskBatch.objects.using(using).filter(pk=batch_id).first()
    if row is None:
        raise TaskResultDoesNotExist(batch_id)
    ended, failed = _counted(row.pk, using)
    if row.finished_at is not None:  # the rows of its tasks may be deleted by now
        ended, failed = row.total, row.failed or 0
    return BatchProgress(using, row.pk, row.total, ended, failed, row.finished_at)


def end_batches_if_due(using: str) -> int:
    return end_batches(using) if is_turn(STEP, EVERY, using) else 0


def end_batches(using: str) -> int:
    """End the batches whose tasks have all ended; return how many."""
    # Index: ems_task_batch_next (finished_at, check_at).
    rows = TaskBatch.objects.using(using).filter(finished_at=None, check_at__lte=UtcNow())
    ids = retrying(list, using, rows.order_by("check_at").values_list("pk", flat=True)[:AT_ONCE])
    ended = 0
    for pk in ids:
        try:
            ended += retrying(_end, using, pk, using)
        except Exception as error:  # a task that cannot be imported must not stop the others
            logger.exception(
                "The batch %d cannot be ended: %s",
                *(pk, error),
                extra=event("batch.failed", batch=pk, database=using),
            )
            retrying(_leave_alone, using, pk, using)
    return ended


def _leave_alone(pk: int, using: str) -> None:
    TaskBatch.objects.using(using).filter(pk=pk).update(check_at=UtcNow(LONGEST))


def _end(pk: int, using: str) -> bool:
    with own_transaction(using):
        open_ = TaskBatch.objects.using(using).filter(pk=pk, finished_at=None)
        row = open_.select_for_update(skip_locked=True).first()
        if row is None:
            return False
        ended, failed = _counted(pk, using)
        if ended < row.total:
            wait = max(EVERY, min(LONGEST, (database_now(using) - row.created_at) / PART))
            open_.update(check_at=UtcNow(wait))
            return False
        open_.update(finished_at=UtcNow(), failed=failed)
        if follows := row.on_failure if failed else row.on_success:
            backend: Any = task_backends[row.backend]
            task = imported(follows["path"]).using(
                backend=row.backend, queue_name=follows["queue"], priority=follows["priority"]
            )
            backend.enqueue_keyed(task, [pk], {}, f"batch:{pk}")
    return True


def _counted(pk: int, using: str) -> tuple[int, int]:
    """Count the tasks that have ended, and those of them that failed. Index: ems_task_of_batch."""
    rows = TaskRun._base_manager.using(using).filter(batch=pk)
    counts = dict(rows.values_list("status").annotate(Count("pk")))
    failed = counts.get(TaskResultStatus.FAILED.value, 0)
    return failed + counts.get(TaskResultStatus.SUCCESSFUL.value, 0), failed


def _named(task: Any) -> dict[str, Any] | None:
    if task is None:
        return None
    return {"path": task.module_path, "queue": task.queue_name, "priority": task.priority}

"""Deletes the rows of tasks that ended some time ago, 500 at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.database.batches import delete_all
from streams.models import UtcNow

ENDED = "`status` IN ('SUCCESSFUL', 'FAILED')"


def old_tasks(using: str) -> Iterator[int]:
    """Delete what each backend does not keep; yield how many rows each batch has deleted."""
    from streams.contrib.tasks.queues import backends

    for backend in backends():
        kept = {
            TaskResultStatus.SUCCESSFUL: backend.known.keep_successful,
            TaskResultStatus.FAILED: backend.known.keep_failed,
        }
        for status, age in kept.items():
            if age is not None:
                yield from prune(using, status, age, backend.alias)
        ages = [age for age in kept.values() if age is not None]
        if len(ages) == len(kept):
            old = UtcNow(-max(ages))
            batches = TaskBatch.objects.using(using).filter(backend=backend.alias)
            ended = batches.filter(finished_at__lt=old).order_by("finished_at")
            yield from delete_all(ended, using, "`finished_at` IS NOT NULL")


def old_rows(using: str, status: str, age: timedelta) -> QuerySet[TaskRun]:
    """Return the tasks that ended so long ago. Index: ems_task_ended (status, finished_at)."""
    rows = TaskRun.objects.using(using).filter(status=status, finished_at__lt=UtcNow(-age))
    # The end of a batch is counted in the rows of its tasks.
    counted = TaskBatch.objects.using(using).filter(pk=OuterRef("batch"), finished_at=None)
    return rows.filter(Q(batch=None) | ~Exists(counted))


def prune(using: str, status: str, age: timedelta, backend: str) -> Iterator[int]:
    return delete_ended(old_rows(using, status, age).filter(backend=backend), using)


def delete_ended(rows: QuerySet[TaskRun], using: str) -> Iterator[int]:
    """Delete ``rows``, but for those that run again by then; yield how many each batch has."""
    return delete_all(rows.order_by("finished_at"), using, ENDED)

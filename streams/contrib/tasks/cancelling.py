"""Cancels tasks: one that waits has failed, one that runs is told so and may stop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from django.db import IntegrityError
from django.db.models import F
from django.utils import timezone

from streams import cancel
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.envelope import Envelope
from streams.contrib.tasks.messages import waiting_task
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.names import topic_of
from streams.contrib.tasks.unique import free
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction

Cancelled = Literal["cancelled", "running", "finished", "unknown"]

CANCELLED = "streams.contrib.tasks.work.TaskCancelled"


def cancel_task(result_id: str, using: str) -> Cancelled:
    """Cancel a task, as part of the transaction that is open, or at once; say what came of it."""
    marks: list[datetime] = []
    return retrying(_cancel, using, result_id, marks, using)


def _cancel(result_id: str, marks: list[datetime], using: str) -> Cancelled:
    """Cancel the task; ``marks`` are the instants that earlier tries of this call wrote."""
    with own_transaction(using):
        if (said := _cancel_begun(result_id, marks, using)) is not None:
            return said
        envelope = waiting_task(result_id, using)
        # Whoever handles the message finds the row, and passes over it.
        if envelope is None or not _insert(envelope, _ended(marks), using):
            return _cancel_begun(result_id, marks, using) or "unknown"  # it has just begun
        cancel(envelope.message_id, topic=topic_of(envelope.queue), using=using)
        if envelope.unique:
            free(envelope.message_id, using)
        return "cancelled"


def _cancel_begun(result_id: str, marks: list[datetime], using: str) -> Cancelled | None:
    """Cancel a task that has a row; None if it has none."""
    rows = TaskRun.objects.using(using).filter(result_id=result_id)
    row = rows.select_for_update().first()
    if row is None:
        return None
    if row.status == TaskResultStatus.RUNNING:
        rows.filter(cancelled_at=None).update(cancelled_at=timezone.now())
        return "running"
    if row.status != TaskResultStatus.READY:
        # With a mark it was committed before, and the reply was lost.
        return "cancelled" if row.cancelled_at in marks else "finished"
    values = _ended(marks)
    # A replay does not run it either: see Record.was_cancelled_waiting.
    rows.update(
        **{**values, "errors": [*row.errors, *values["errors"]]}, attempts_before=F("attempts")
    )
    free(row.message_id, using)
    return "cancelled"


def _ended(marks: list[datetime]) -> dict[str, Any]:
    marks.append(timezone.now().astimezone(UTC))
    error = {"exception_class_path": CANCELLED, "traceback": "The task was cancelled."}
    status = TaskResultStatus.FAILED.value
    return {
        "status": status,
        "finished_at": marks[-1],
        "cancelled_at": marks[-1],
        "errors": [error],
    }


def _insert(envelope: Envelope, ended: dict[str, Any], using: str) -> bool:
    """Write the row of a task that has not begun; return False if it has one."""
    try:
        with own_transaction(using):
            TaskRun.objects.using(using).create(**envelope.columns, **ended)
    except IntegrityError:
        return False
    return True

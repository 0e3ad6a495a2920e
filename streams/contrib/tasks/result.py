"""Defines the results that the backend gives: of a task that waits, and of one that has begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.contrib.tasks.compat import TaskError, TaskResult, TaskResultStatus
from streams.contrib.tasks.envelope import Envelope, shown
from streams.contrib.tasks.models import TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class EmsTaskResult(TaskResult):  # type: ignore[type-arg]  # generic only in the backport
    """A result that also says whether its task was enqueued before, and what the task has noted."""

    duplicate: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def waiting(envelope: Envelope) -> EmsTaskResult:
    """Return the result of a task that has not begun."""
    return EmsTaskResult(
        task=envelope.task(),
        id=envelope.result_id,
        status=TaskResultStatus.READY,
        enqueued_at=shown(envelope.enqueued_at),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=envelope.args,
        kwargs=envelope.kwargs,
        backend=envelope.backend,
        errors=[],
        worker_ids=[],
        metadata=envelope.metadata,
    )


def of_run(row: TaskRun) -> EmsTaskResult:
    envelope = Envelope(
        result_id=row.result_id,
        message_id=row.message_id,
        backend=row.backend,
        queue=row.queue,
        path=row.path,
        priority=row.priority,
        args=row.arguments["args"],
        kwargs=row.arguments["kwargs"],
        run_after=row.run_after,
        enqueued_at=row.enqueued_at,
        metadata=row.metadata,
    )
    result = waiting(envelope)
    renew(
        result,
        status=TaskResultStatus(row.status),
        started_at=shown(row.started_at),
        last_attempted_at=shown(row.last_attempted_at),
        finished_at=shown(row.finished_at),
        worker_ids=row.worker_ids,
        errors=[TaskError(**error) for error in row.errors],
        _return_value=row.return_value,
    )
    return result


def renew(result: TaskResult[Any], **values: Any) -> None:
    """Change a result, which is frozen for all others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)

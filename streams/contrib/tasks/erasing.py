"""Erases what tasks keep of messages: arguments, results and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from streams.contrib.tasks.cancelling import cancel_task
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.messages import of_row
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.models.run import ENDED
from streams.contrib.tasks.names import PREFIX, queue_of
from streams.contrib.tasks.unique import free
from streams.database.retrying import retrying
from streams.models import Message, UtcNow

EMPTY: dict[str, Any] = {
    "arguments": {"args": [], "kwargs": {}},
    "return_value": None,
    "errors": [],
    "metadata": {},
}


class TaskErased(Exception):
    """The message of the task was erased."""

    def __str__(self) -> str:
        return str(self.__doc__)


def erase(using: str, topic: str, messages: Sequence[Message]) -> int:
    """Erase those of tasks that do not run: these still need them. Return how many.

    A task that waits cannot run without its message, so it is cancelled.
    """
    if not topic.startswith(PREFIX):
        return 0
    rows = _rows(using, topic, [message.pk for message in messages])
    ready = rows.filter(status=TaskResultStatus.READY).values_list("result_id", flat=True)
    for result_id in [*retrying(list, using, ready), *_counted(using, topic, messages)]:
        cancel_task(result_id, using)
    return retrying(lambda: rows.filter(status__in=ENDED).update(**EMPTY), using)


def fail(using: str, topic: str, message_id: int) -> None:
    """Let the task of an erased message be FAILED, and erase it.

    It ran during the erasure, and no call of it runs now.
    """
    free(message_id, using)
    failed = {"status": TaskResultStatus.FAILED.value, "finished_at": UtcNow()}
    open_ = _rows(using, topic, [message_id]).exclude(status__in=ENDED)
    retrying(lambda: open_.update(**failed, **EMPTY), using)


def _rows(using: str, topic: str, ids: Sequence[int]) -> QuerySet[TaskRun]:
    """Return the rows of the messages. Index: ems_task_message."""
    rows = TaskRun._base_manager.using(using)
    return rows.filter(queue=queue_of(topic), message_id__in=ids)


def _counted(using: str, topic: str, messages: Sequence[Message]) -> list[str]:
    """Return the results of tasks that have not begun, and that a batch waits for.

    Their rows are counted, and nothing but their messages says of which batch they are.
    """
    tasks = [one for message in messages if (one := of_row(message, topic)) and one.batch]
    open_ = TaskBatch.objects.using(using).filter(
        pk__in={one.batch for one in tasks}, finished_at=None
    )
    batches = set(retrying(list, using, open_.values_list("pk", flat=True)))
    waited = [one.result_id for one in tasks if one.batch in batches]
    begun = TaskRun.objects.using(using).filter(result_id__in=waited)
    return sorted(
        {*waited}.difference(retrying(list, using, begun.values_list("result_id", flat=True)))
    )

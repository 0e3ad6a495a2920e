"""Defines EmsBackend: a task is a message of a topic, and a queue is a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils import timezone

from streams import send
from streams.conf import longest_name
from streams.contrib.tasks import task_options
from streams.contrib.tasks.compat import (
    BaseTaskBackend,
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from streams.contrib.tasks.envelope import (
    Envelope,
    NotATask,
    as_instant,
    headers_of,
    new_nonce,
    result_id,
)
from streams.contrib.tasks.names import MAX_BACKEND, MAX_PATH, MAX_QUEUE, tag_of, topic_of
from streams.contrib.tasks.result import EmsTaskResult, of_run, renew, waiting
from streams.contrib.tasks.settings import TaskSettings
from streams.models import Message
from streams.sharding import alias_of, aliases


class EmsBackend(BaseTaskBackend):
    """Django's tasks as messages: what is enqueued is committed, or rolled back, with the rest."""

    task_class = task_options.EmsTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.known = TaskSettings.of(alias, self.queues, self.options)

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        task_options.validate(task)
        for value, most, what in (
            (task.module_path, MAX_PATH, "path"),
            (task.backend, MAX_BACKEND, "backend"),
            (task.queue_name, longest_name(MAX_QUEUE), "queue"),
        ):
            if len(value) > most:
                raise InvalidTaskError(f"The {what} of a task has at most {most} characters.")

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EmsTaskResult:
        """Send the task, as part of the transaction that is open, or at once."""
        self.validate_task(task)
        result, nonce = self._new(task, args, kwargs), new_nonce()
        sent = send(
            topic_of(task.queue_name),
            {"args": result.args, "kwargs": result.kwargs},
            tag=tag_of(task.module_path),
            headers=headers_of(task, nonce, result.enqueued_at or timezone.now()),
            deliver_at=None if task.run_after is None else as_instant(task.run_after),
        )
        renew(result, id=result_id(sent.message_id, nonce))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _new(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EmsTaskResult:
        return EmsTaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
            metadata=dict(getattr(task, "metadata", None) or {}),
        )

    def get_result(self, result_id: str) -> EmsTaskResult:
        """Return the result by its id; raises TaskResultDoesNotExist."""
        for using in self._aliases():
            if found := self._on(using, str(result_id)):
                return found
        raise TaskResultDoesNotExist(result_id)

    def _aliases(self) -> Sequence[str]:
        if not self.queues:
            return aliases()
        return list(dict.fromkeys(alias_of(topic_of(queue)) for queue in sorted(self.queues)))

    def _on(self, using: str, wanted: str) -> EmsTaskResult | None:
        from streams.contrib.tasks.models import TaskRun

        if row := TaskRun.objects.using(using).filter(result_id=wanted).first():
            return of_run(row)
        number = wanted.partition(".")[0]
        if not number.isdecimal() or len(number) > 18:
            return None
        rows = Message.objects.using(using).select_related("partition__topic")
        message = rows.filter(pk=int(number)).first()
        if message is None:
            return None
        topic = message.partition.topic.name
        body = message.readable_body()
        try:
            envelope = Envelope.of(message.pk, topic, message.headers or {}, decoded(message, body))
        except NotATask:
            return None
        return waiting(envelope) if envelope.result_id == wanted else None


def decoded(message: Message, body: bytes | None) -> Any:
    from streams.body import decode

    return None if body is None else decode(body, message.body_type)

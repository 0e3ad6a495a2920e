"""Defines EmsBackend: a task is a message of a topic, and a queue is a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.apps import apps
from django.core import checks
from django.utils import timezone

from streams import Outgoing, SendResult, send, send_many
from streams.conf import longest_name
from streams.contrib.tasks import task_options, unique
from streams.contrib.tasks.batches import BatchProgress, batch_of, new_batch
from streams.contrib.tasks.cancelling import Cancelled, cancel_task
from streams.contrib.tasks.compat import (
    BaseTaskBackend,
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from streams.contrib.tasks.envelope import as_instant, headers_of, result_id
from streams.contrib.tasks.lanes import lane
from streams.contrib.tasks.messages import found_by_message, waiting_task
from streams.contrib.tasks.names import MAX_BACKEND, MAX_PATH, MAX_QUEUE, tag_of, topic_of
from streams.contrib.tasks.result import EmsTaskResult, of_run, renew, waiting
from streams.contrib.tasks.settings import TaskSettings
from streams.database.elsewhere import elsewhere
from streams.database.transactions import sees_the_past
from streams.errors import MixedShards
from streams.rules.json_column import check_storable
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

    def check(self, **kwargs: Any) -> list[Any]:
        """Return what is wrong with this backend in TASKS; checks.py has the rest."""
        found = list(super().check(**kwargs))
        if not apps.is_installed("streams.contrib.tasks"):
            found.append(
                checks.Error(
                    f"TASKS[{self.alias!r}] is a backend of EMS, but its app is not installed.",
                    hint="Add “streams.contrib.tasks” to INSTALLED_APPS, after “streams”.",
                    id="ems.E030",
                )
            )
        return found

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EmsTaskResult:
        """Send the task, as part of the transaction that is open, or at once.

        If it is unique and was enqueued before, the result is that of the first one, and says so.
        Raises InvalidTaskError, and InvalidMessage for arguments that its row could not have.
        """
        result, message = self._prepared(task, args, kwargs)
        sent = send(
            message.topic,
            message.body,
            tag=message.tag,
            headers=message.headers,
            deliver_at=message.deliver_at,
            partition=message.partition,
            dedup_key=message.dedup_key,
            dedup_window=message.dedup_window,
        )
        return self._enqueued(result, message, sent)

    def enqueue_keyed(
        self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: str
    ) -> EmsTaskResult:
        """Enqueue a task once for ``key``, whatever it says itself of being unique.

        Neither its start nor its end frees this key.
        """
        result, message = self._prepared(task, args, kwargs)
        headers = {**(message.headers or {})}
        headers.pop("unique", None)
        window = unique.LONGEST
        message = replace(message, headers=headers, dedup_key=key, dedup_window=window)
        return self._enqueued(result, message, *send_many([message]))

    def enqueue_many(
        self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> list[EmsTaskResult]:
        """Send a task many times, all or none, with few statements; return the results in order.

        ``calls`` has the positional and the named arguments of each.
        """
        return self.send_all([(task, args, kwargs) for args, kwargs in calls])

    def send_all(
        self, calls: Iterable[tuple[Any, Sequence[Any], Mapping[str, Any]]], **headers: str
    ) -> list[EmsTaskResult]:
        """Send several tasks, all or none; each message has ``headers``, too."""
        prepared = [self._prepared(task, args, more, **headers) for task, args, more in calls]
        sent = send_many([message for _result, message in prepared])
        return [
            self._enqueued(result, message, one)
            for (result, message), one in zip(prepared, sent, strict=True)
        ]

    def _prepared(
        self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **headers: str
    ) -> tuple[EmsTaskResult, Outgoing]:
        self.validate_task(task)
        result = self._new(task, args, kwargs)
        content = {"args": result.args, "kwargs": result.kwargs}
        check_storable(content, "The arguments are")
        check_storable(result.metadata, "The metadata is")
        topic = topic_of(task.queue_name)
        key = unique.key_of(task, result.args, result.kwargs)
        if key is not None:
            headers["unique"] = unique.until_of(task)
        return result, Outgoing(
            topic,
            content,
            tag=tag_of(task.module_path),
            headers={**headers_of(task, result.enqueued_at or timezone.now()), **headers},
            deliver_at=None if task.run_after is None else as_instant(task.run_after),
            partition=lane(topic, task.priority, alias_of(topic)),
            dedup_key=key,
            dedup_window=None if key is None else unique.window_of(task),
        )

    def _enqueued(
        self, result: EmsTaskResult, message: Outgoing, sent: SendResult
    ) -> EmsTaskResult:
        if sent.duplicate:
            return self._first(result, sent)
        headers = message.headers or {}
        renew(result, id=result_id(sent.message_id, headers["id"]))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _first(self, result: EmsTaskResult, sent: SendResult) -> EmsTaskResult:
        """Return the result of the task that was enqueued before, as far as it is still known."""
        using = alias_of(sent.topic)
        find = partial(found_by_message, sent.message_id, sent.topic, using)
        first = elsewhere(using, find) if sees_the_past(using) else find()
        # Of a task that has ended and is deleted, with a window that is longer than that.
        first = first or result
        renew(first, duplicate=True)
        return first

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

    def enqueue_batch(
        self,
        calls: Iterable[tuple[Any, Sequence[Any], Mapping[str, Any]]],
        *,
        on_success: Any = None,
        on_failure: Any = None,
    ) -> BatchProgress:
        """Enqueue several tasks, all or none, and another one when all of them have ended.

        ``calls`` has the task, the positional and the named arguments of each. When all were
        successful ``on_success`` is enqueued, else ``on_failure``, each with the id of the batch.
        """
        return new_batch(self, list(calls), on_success, on_failure)

    def get_batch(self, batch_id: int, using: str | None = None) -> BatchProgress:
        """Return how far a batch is; raises TaskResultDoesNotExist.

        Each database counts its batches. Where the queues are on several, ``using`` says on which
        one this is, as its ``database`` does; without it MixedShards is raised.
        """
        if using is None:
            using, *others = self._aliases()
            if others:
                text = "The queues of this backend are on several databases: name one by using=."
                raise MixedShards(text)
        return batch_of(batch_id, using)

    def get_result(self, result_id: str) -> EmsTaskResult:
        """Return the result by its id; raises TaskResultDoesNotExist.

        Also for a task whose row was deleted after its end, or whose message was skipped.
        """
        for using in self._aliases():
            if found := self._on(using, str(result_id)):
                return found
        raise TaskResultDoesNotExist(result_id)

    def cancel(self, result_id: str) -> Cancelled:
        """Cancel a task: "cancelled", "running" (it is told), "finished" or "unknown".

        As part of the transaction that is open, or at once. A task that runs asks by
        ``context.cancelled``; one that waits does not run any more.
        """
        for using in self._aliases():
            if (said := cancel_task(str(result_id), using)) != "unknown":
                return said
        return "unknown"

    def _aliases(self) -> Sequence[str]:
        if not self.queues:
            return aliases()
        return list(dict.fromkeys(alias_of(topic_of(queue)) for queue in sorted(self.queues)))

    def _on(self, using: str, wanted: str) -> EmsTaskResult | None:
        from streams.contrib.tasks.models import TaskRun

        rows = TaskRun.objects.using(using).filter(result_id=wanted)
        if row := rows.first():
            return of_run(row)
        if envelope := waiting_task(wanted, using):
            return waiting(envelope)
        row = rows.first()  # it may have run since the first look
        return of_run(row) if row else None

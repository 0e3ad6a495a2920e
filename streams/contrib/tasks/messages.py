"""Finds tasks by the messages that they are."""

from __future__ import annotations

from streams import body
from streams.contrib.tasks.envelope import Envelope, NotATask
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.names import queue_of
from streams.contrib.tasks.result import EmsTaskResult, of_run, waiting
from streams.models import Message


def of_message(message_id: int, using: str) -> Envelope | None:
    """Return the task that a message is; None if it is gone, or no task."""
    rows = Message.objects.using(using).select_related("partition__topic")
    message = rows.filter(pk=message_id).first()
    return None if message is None else of_row(message, message.partition.topic.name)


def of_row(message: Message, topic: str) -> Envelope | None:
    """Return the task that the message of the topic is, as it was read; None if it is no task."""
    content = message.readable_body()
    if content is None:
        return None
    try:
        decoded = body.decode(content, message.body_type)
        return Envelope.of(message.pk, topic, message.headers or {}, decoded)
    except NotATask:
        return None


def found_by_message(message_id: int, topic: str, using: str) -> EmsTaskResult | None:
    """Return the result of a task by its message, which may have been purged."""
    if envelope := of_message(message_id, using):
        rows = TaskRun.objects.using(using).filter(result_id=envelope.result_id)
        row = rows.first()
        return of_run(row) if row else waiting(envelope)
    # Index: ems_task_message. After a TRUNCATE the newest is meant.
    rows = TaskRun.objects.using(using).filter(message_id=message_id, queue=queue_of(topic))
    row = rows.order_by("-pk").first()
    return of_run(row) if row else None

"""Finds tasks by the messages that they are."""

from __future__ import annotations

from streams import body
from streams.contrib.tasks.envelope import Envelope, NotATask
from streams.contrib.tasks.models import TaskBatch, TaskRun
from streams.contrib.tasks.names import GROUP, queue_of
from streams.contrib.tasks.result import EmsTaskResult, of_run, waiting
from streams.log.unfinished import is_unfinished
from streams.models import Cursor, Message


def of_message(message_id: int, using: str) -> Envelope | None:
    """Return the task that a message is; None if it is gone, or no task."""
    message = _message(message_id, using)
    return None if message is None else of_row(message, message.partition.topic.name)


def _message(message_id: int, using: str) -> Message | None:
    rows = Message.objects.using(using).select_related("partition__topic")
    return rows.filter(pk=message_id).first()


def waiting_task(result_id: str, using: str) -> Envelope | None:
    """Return the task of a result that has no row, if it waits to run; else None.

    A message alone does not say so: the row of a task that has ended may be deleted before it.
    Whoever gets None looks for the row again, since the task may have begun and ended meanwhile.
    """
    number = result_id.partition(".")[0]
    if not number.isdecimal() or len(number) > 18:
        return None
    message = _message(int(number), using)
    if message is None:
        return None
    envelope = of_row(message, message.partition.topic.name)
    if envelope is None or envelope.result_id != result_id:
        return None
    return envelope if _waits(message, using) or _is_counted(envelope, using) else None


def _waits(message: Message, using: str) -> bool:
    """Tell whether the group of the tasks has not finished the message."""
    if message.offset is None:
        return True
    own = Cursor.objects.using(using).filter(
        group__topic=message.partition.topic_id,
        group__name=GROUP,
        partition=message.partition_id,
        replay=0,
    )
    cursor = own.first()  # without one it has not read the partition, and begins with its earliest
    return cursor is None or is_unfinished(message, using, cursor.group_id)


def _is_counted(envelope: Envelope, using: str) -> bool:
    """Tell whether a batch waits for the row of the task: then it was never written.

    The group may have passed the message by a reset. See prune.py.
    """
    if envelope.batch is None:
        return False
    return TaskBatch.objects.using(using).filter(pk=envelope.batch, finished_at=None).exists()


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

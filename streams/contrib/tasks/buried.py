"""Notes that a task is a dead letter, where not its own attempt has given up."""

from __future__ import annotations

from typing import Any

from streams import body
from streams.contrib.tasks import erasing
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.envelope import Envelope, NotATask
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.names import GROUP, PREFIX
from streams.contrib.tasks.task_options import UNTIL_FINISH, UNTIL_START
from streams.contrib.tasks.unique import free
from streams.database.retrying import retrying
from streams.errors import describe
from streams.models import DeadMessage, UtcNow
from streams.operate.erasure import ERASED


def note(topic: str, group: str, partition: int, offset: int, using: str, **more: Any) -> None:
    """Let a task be FAILED whose dead letter an operator, or the end of a lease, has written.

    A receiver of the signal message_dead: the attempt itself has written it before.
    """
    if group != GROUP or not topic.startswith(PREFIX):
        return
    letters = DeadMessage.objects.using(using).filter(
        topic__name=topic, partition__number=partition, offset=offset, group__name=group
    )
    letter = letters.order_by("-pk").first()
    if letter is None:
        return
    content = letter.readable_body()
    decoded = None if content is None else body.decode(content, letter.body_type)
    try:
        one = Envelope.of(letter.message_id, topic, letter.headers or {}, decoded)
    except NotATask:
        if letter.message_id and ERASED in (letter.headers or {}):
            erasing.fail(using, topic, letter.message_id)
        return
    rows = TaskRun.objects.using(using).filter(result_id=one.result_id)
    failed = {"status": TaskResultStatus.FAILED.value, "finished_at": UtcNow(), "token": 0}
    retrying(lambda: rows.exclude(status=failed["status"]).update(**failed), using)
    if one.unique in (UNTIL_START, UNTIL_FINISH):  # no attempt comes that would free its key
        free(one.message_id, using)
    if not retrying(rows.exists, using):
        error = more.get("error")
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        values = {
            **one.columns,
            **failed,
            "partition": partition,
            "offset": offset,
            "errors": [{"exception_class_path": path, "traceback": describe(error)}],
        }
        row = TaskRun.objects.using(using)
        retrying(lambda: row.get_or_create(result_id=one.result_id, defaults=values), using)

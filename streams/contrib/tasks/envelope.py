"""Defines what of a task is in its message: the arguments as the body, all else as headers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from streams.contrib.tasks.compat import Task
from streams.contrib.tasks.names import queue_of

NONCE = 16


class NotATask(ValueError):
    """The message is no task: somebody else has sent it to this topic."""

    def __str__(self) -> str:
        return str(self.__doc__)


def new_nonce() -> str:
    """Return the part of a result's id that nobody can guess."""
    return secrets.token_urlsafe(NONCE * 6 // 8)


def result_id(message_id: int, nonce: str) -> str:
    """Return the id of a result: after a TRUNCATE, another message may have the same number."""
    return f"{message_id}.{nonce}"


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A task as its message says it."""

    result_id: str
    message_id: int
    backend: str
    queue: str
    path: str
    priority: int
    args: list[Any]
    kwargs: dict[str, Any]
    run_after: datetime | None
    enqueued_at: datetime
    metadata: dict[str, Any]
    unique: str = ""  # until when it is
    batch: int | None = None

    @classmethod
    def of(cls, message_id: int, topic: str, headers: Mapping[str, str], body: Any) -> Envelope:
        """Read a message; raises NotATask."""
        try:
            after = headers.get("run_after")
            return cls(
                result_id=result_id(message_id, headers["id"]),
                message_id=message_id,
                backend=headers["backend"],
                queue=queue_of(topic),
                path=headers["task"],
                priority=int(headers.get("priority", 0)),
                args=list(body["args"]),
                kwargs=dict(body["kwargs"]),
                run_after=as_instant(datetime.fromisoformat(after)) if after else None,
                enqueued_at=as_instant(datetime.fromisoformat(headers["at"])),
                metadata=json.loads(headers.get("metadata", "{}")),
                unique=headers.get("unique", ""),
                batch=int(headers["batch"]) if "batch" in headers else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotATask from error

    @property
    def arguments(self) -> dict[str, Any]:
        return {"args": self.args, "kwargs": self.kwargs}

    @property
    def columns(self) -> dict[str, Any]:
        """Return what the row of the task has of it."""
        return {
            "result_id": self.result_id,
            "message_id": self.message_id,
            "backend": self.backend,
            "queue": self.queue,
            "path": self.path,
            "priority": self.priority,
            "arguments": self.arguments,
            "run_after": self.run_after,
            "enqueued_at": self.enqueued_at,
            "metadata": self.metadata,
            "batch_id": self.batch,
        }

    def task(self) -> Any:
        """Import the task, as it was enqueued. Raises ImportError and SuspiciousOperation."""
        task = imported(self.path)
        wanted = {
            "priority": self.priority,
            "queue_name": self.queue,
            "run_after": shown(self.run_after),
            "backend": self.backend,
        }
        # Most were enqueued as they are defined. A copy of one is checked as the first was.
        as_defined = all(getattr(task, name) == value for name, value in wanted.items())
        return task if as_defined else task.using(**wanted)


def imported(path: str) -> Any:
    """Import a task; what else the path names is refused, since it comes from a table."""
    task = import_string(path)
    if not isinstance(task, Task):
        raise SuspiciousOperation(f"{path} is not a task.")
    return task


def headers_of(task: Any, enqueued_at: datetime) -> dict[str, str]:
    found = {
        "task": task.module_path,
        "backend": task.backend,
        "id": new_nonce(),
        "at": as_instant(enqueued_at).isoformat(),
    }
    if task.priority:
        found["priority"] = str(int(task.priority))
    if task.run_after is not None:
        found["run_after"] = as_instant(task.run_after).isoformat()
    if metadata := getattr(task, "metadata", None):
        found["metadata"] = json.dumps(metadata)
    return found


def as_instant(value: datetime) -> datetime:
    """Return an aware datetime in UTC; a naive one is of the current time zone."""
    if timezone.is_naive(value):
        value = timezone.make_aware(value)
    return value.astimezone(UTC)


def shown(value: datetime | None) -> datetime | None:
    """Return an instant as the project has its datetimes: aware or naive, by USE_TZ."""
    from django.conf import settings

    if value is None or settings.USE_TZ:
        return value
    return timezone.make_naive(value)

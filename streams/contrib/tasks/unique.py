"""Keeps a task from being enqueued again: by the dedup key of its message.

The key is held for a time, or until the task starts or has ended: then the handler frees it. A
retry sends nothing, so it never meets its own key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db import connections

from streams.contrib.tasks.task_options import UNTIL_FINISH, UNTIL_WINDOW
from streams.database.retrying import retrying
from streams.database.sql import send as sql
from streams.database.sql.dialect import execute, fetch

# How long a key is held at most that a task frees: the end of a task may never come, as when an
# operator skips its message.
LONGEST = timedelta(days=1)


def key_of(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the dedup key of a task with these arguments; None if it may be enqueued again."""
    unique = getattr(task, "unique", None)
    if not unique:
        return None
    if unique == "task":
        about = ""
    elif unique == "args":
        about = json.dumps([args, kwargs], sort_keys=True)
    else:
        about = str(unique(*args, **kwargs))
    return f"task:{sha256(f'{task.module_path}:{about}'.encode()).hexdigest()}"


def until_of(task: Any) -> str:
    given = getattr(task, "unique_until", None)
    if given is None:
        return UNTIL_FINISH if getattr(task, "unique_for", None) is None else UNTIL_WINDOW
    return str(given)


def window_of(task: Any) -> timedelta | None:
    """Return how long a key is held; None leaves it to the run-time settings."""
    given = getattr(task, "unique_for", None)
    if given is None:
        return None if until_of(task) == UNTIL_WINDOW else LONGEST
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def free(message_id: int, using: str) -> None:
    """Let the key of a message be used again. Indexes: ems_dedup_message, then the primary key."""
    held = retrying(fetch, using, using, sql.FIND_DEDUP_OF_MESSAGE, [message_id])
    for (key,) in held:
        statement = sql.FREE_DEDUP[connections[using].vendor]
        retrying(execute, using, using, statement, [key, message_id])

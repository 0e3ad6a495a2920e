"""Erases what tasks keep of messages: arguments, results and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.models.run import ENDED
from streams.contrib.tasks.names import PREFIX, queue_of
from streams.database.retrying import retrying


def erase(using: str, topic: str, messages: Sequence[int]) -> int:
    """Erase those of tasks that have ended; the others still need them. Return how many."""
    if not topic.startswith(PREFIX):
        return 0
    rows = TaskRun._base_manager.using(using).filter(
        queue=queue_of(topic), message_id__in=messages, status__in=ENDED
    )
    empty: dict[str, Any] = {"return_value": None, "errors": [], "metadata": {}}
    empty["arguments"] = {"args": [], "kwargs": {}}
    return retrying(lambda: rows.update(**empty), using)

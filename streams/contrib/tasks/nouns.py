"""Describes a task that has begun."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class TaskHead(Noun):
    """A task without its arguments, its result and its errors."""

    id: str = column("result_id")
    task: str = column("path")
    queue: str
    status: str
    priority: int
    attempts: int
    backend: str
    message_id: int
    batch: int | None = column("batch_id")
    enqueued_at: datetime
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None
    cancelled_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class TaskShown(TaskHead):
    """A task with all that is known of it."""

    arguments: dict[str, Any]
    return_value: Any
    metadata: dict[str, Any]
    worker_ids: list[str]
    errors: list[dict[str, str]]

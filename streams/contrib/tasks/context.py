"""Defines the context that a task gets which takes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams.contrib.tasks.compat import TaskContext
from streams.contrib.tasks.record import Record


@dataclass(frozen=True, kw_only=True)
class EmsTaskContext(TaskContext):
    """The context of a running task: with it the task says how far it is, and asks whether to stop.

    ``metadata`` is the task's own dict; save_metadata() writes it, so that others see it.
    """

    record: Record

    @property
    def metadata(self) -> dict[str, Any]:
        return self.record.metadata

    def save_metadata(self) -> None:
        """Write ``metadata`` now; at the end of the task it is written in any case."""
        self.record.save_metadata(self.record.metadata)

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled the task since it began; each look is a statement."""
        return self.record.is_cancelled()

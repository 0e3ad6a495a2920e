"""Tells which task the pool is about to give to one of its processes.

The processes of a pool say later what they have begun, and one that dies takes its parent along
before that is read. A task is noted as begun before its process can have read it: only what ran has
spent an attempt when both are dead, and a task that kills them does not come back for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Whoever is to be told, by the id of the task, in the process that has the pool.
told: set[Callable[[str], None]] = set()

_GIVEN_TO = "_write_to"  # of a job of the pool: the process, set before the first byte is written


def _given_to(job: Any) -> Any:
    return job.__dict__.get(_GIVEN_TO)


def _give(job: Any, process: Any) -> None:
    if process is not None:
        for tell in list(told):
            tell(job.correlation_id)
    job.__dict__[_GIVEN_TO] = process


def listen() -> None:
    """Let the jobs of this process's pool tell it."""
    from billiard.pool import ApplyResult  # type: ignore[import-untyped]

    setattr(ApplyResult, _GIVEN_TO, property(_given_to, _give))

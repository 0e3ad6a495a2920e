"""Runs the tasks of Django's tasks framework on topics: a backend, its workers are ems_consume.

The names below are loaded on first use, since settings name this package before apps are ready.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.contrib.tasks.backend import EmsBackend
    from streams.contrib.tasks.task_options import options
    from streams.contrib.tasks.work import TaskCancelled

_HOME = {
    "EmsBackend": "streams.contrib.tasks.backend",
    "TaskCancelled": "streams.contrib.tasks.work",
    "options": "streams.contrib.tasks.task_options",
}

__all__ = ["EmsBackend", "TaskCancelled", "options"]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)

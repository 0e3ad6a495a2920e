"""Defines EmsTask: a task with the options of EMS, and @options, which gives them on Django 6.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from django.utils.inspect import get_func_args
from django.utils.module_loading import import_string

from streams.contrib.tasks.compat import InvalidTaskError, Task

F = TypeVar("F", bound=Callable[..., Any])

# How long a failed task waits: seconds, a timedelta, None to give up at once, "ladder" for
# EMS["RETRY_DELAYS"], or a function (exception, task_result) that returns one of the first three.
Backoff = Any
LADDER = "ladder"
# Until when a unique task may not be enqueued again.
UNTIL_WINDOW, UNTIL_START, UNTIL_FINISH = "window", "start", "finish"

_GIVEN = "ems_options"


@dataclass(frozen=True, kw_only=True)
class EmsTask(Task):  # type: ignore[type-arg]  # generic only in the backport
    """A task whose decorator may have the options of EMS."""

    max_attempts: int | None = None
    backoff: Backoff = field(default=..., hash=False)
    atomic: bool | None = None
    # "task", "args", or a function of the arguments that returns a text.
    unique: Any = None
    unique_for: float | timedelta | None = None
    unique_until: str | None = None
    # How many may run at the same time: of the task, or with one value of an argument, by its name
    # or by a function of the arguments.
    limit: int | None = None
    limit_key: Any = None
    # After how long a running task hangs, if it is less than the timeout of its queue.
    timeout: float | timedelta | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for name, value in getattr(self.func, _GIVEN, {}).items():
            object.__setattr__(self, name, value)
        Task.__post_init__(self)

    def using(self, *, metadata: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        """Return the task with other arguments; ``metadata`` goes along with it as JSON."""
        changed = Task.using(self, **changes)
        return changed if metadata is None else replace(changed, metadata=metadata)


OWN = {one.name for one in fields(EmsTask)} - {one.name for one in fields(Task)} - {"metadata"}


def options(**given: Any) -> Callable[[F], F]:
    """Give a task the options of EMS, below ``@task``: Django 6.0's decorator takes no others.

    Raises InvalidTaskError for a name that is none.
    """
    if unknown := given.keys() - OWN:
        raise InvalidTaskError(f"There is no option {sorted(unknown)[0]!r} of a task.")

    def give(function: F) -> F:
        setattr(function, _GIVEN, given)
        return function

    return give


def validate(task: Any) -> None:
    """Check the options of a task; raises InvalidTaskError."""
    most = getattr(task, "max_attempts", None)
    if most is not None and not (_is_whole(most) and 1 <= most <= 10_000):
        raise InvalidTaskError("max_attempts must be a whole number from 1 to 10000.")
    if (wait := getattr(task, "backoff", ...)) is not ... and not is_backoff(wait):
        raise InvalidTaskError(
            "backoff must be seconds, a timedelta, None, 'ladder' or a function that returns one"
            " of the first three."
        )
    if not isinstance(getattr(task, "atomic", None), bool | None):
        raise InvalidTaskError("atomic must be True or False.")
    unique = getattr(task, "unique", None)
    if not (unique in (None, "task", "args") or callable(unique)):
        raise InvalidTaskError("unique must be 'task', 'args' or a function of the arguments.")
    until = getattr(task, "unique_until", None)
    if until not in (None, UNTIL_WINDOW, UNTIL_START, UNTIL_FINISH):
        raise InvalidTaskError("unique_until must be 'window', 'start' or 'finish'.")
    given = getattr(task, "unique_for", None)
    if given is not None and not (_is_delay(given) and given):
        raise InvalidTaskError("unique_for must be seconds, or a timedelta, above 0.")
    if unique is None and not (until is None and given is None):
        raise InvalidTaskError("unique_for and unique_until are of no use without unique.")

    given = getattr(task, "timeout", None)
    if given is not None and not (_is_delay(given) and given):
        raise InvalidTaskError("timeout must be seconds, or a timedelta, above 0.")

    limit, key = getattr(task, "limit", None), getattr(task, "limit_key", None)
    if limit is not None and not (_is_whole(limit) and 1 <= limit <= 1000):
        raise InvalidTaskError("limit must be a whole number from 1 to 1000.")
    if key is not None and limit is None:
        raise InvalidTaskError("limit_key is of no use without limit.")
    if not (key is None or callable(key) or key in get_func_args(task.func)):
        raise InvalidTaskError("limit_key must be an argument of the task, or a function of them.")


def is_backoff(value: Any) -> bool:
    if isinstance(value, str):
        return value == LADDER or "." in value
    return value is None or callable(value) or _is_delay(value)


def delay_of(backoff: Backoff, error: BaseException, result: Any) -> timedelta | str | None:
    """Return how long a task waits that failed with ``error``; "ladder" leaves it to the group."""
    if isinstance(backoff, str) and backoff != LADDER:
        backoff = import_string(backoff)
    if callable(backoff):
        backoff = backoff(error, result)
    if isinstance(backoff, int | float):
        return timedelta(seconds=backoff)
    delay: timedelta | str | None = backoff
    return delay


def _is_delay(value: Any) -> bool:
    if isinstance(value, timedelta):
        return value >= timedelta(0)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

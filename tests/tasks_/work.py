"""Holds the tasks of the tests. Imported once TASKS is set: a task belongs to a backend."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from streams import Postpone, Reject, Retry
from streams.contrib.tasks import TaskCancelled, options
from streams.contrib.tasks.compat import task, task_backends
from tests.hostapp.models import Handled, Order


@task
def add(one: int, two: int) -> int:
    return one + two


@task
def count(*values: Any) -> int:
    return len(values)


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
async def add_slowly(one: int, two: int) -> int:
    await asyncio.sleep(0)
    return one + two


@task(takes_context=True)
def tell_attempt(context: Any) -> int:
    context.metadata["attempt"] = context.attempt
    context.save_metadata()
    return int(context.attempt)


@task
def unserialisable() -> Any:
    return object()


@task
@options(max_attempts=3, backoff=5)
def fail_until(number: int) -> int:
    """Fail before its attempt ``number``, as rows of Handled count them."""
    made = Handled.objects.filter(topic="fail_until").count() + 1
    Handled.objects.create(group="", topic="fail_until", partition=0, offset=0, value=str(made))
    if made < number:
        raise ValueError(f"attempt {made}")
    return made


@task
@options(max_attempts=3)
def ask_again() -> None:
    raise Retry("later", delay=60)


@task(takes_context=True)
@options(max_attempts=1)
def wait_for(context: Any, number: int) -> int:
    """Wait until it was asked ``number`` times; no wait spends the only attempt."""
    asked = context.metadata["asked"] = context.metadata.get("asked", 0) + 1
    if asked < number:
        raise Postpone(60)
    return int(context.attempt)


def spoilt(how: str) -> Any:
    """Return what a column cannot hold."""
    deep: Any = 1
    for _level in range(40):
        deep = [deep]
    wrong = {"object": object(), "nan": float("nan"), "text": "\ud800", "depth": deep}
    return wrong[how]


@task(takes_context=True)
@options(max_attempts=3, backoff=None)
def spoil(context: Any, how: str, end: str) -> None:
    """Leave metadata that cannot be stored, whatever comes of the attempt."""
    note.func(how)
    context.metadata["kept"] = 1
    context.save_metadata()
    context.metadata["lost"] = spoilt(how)
    if end == "save":
        context.save_metadata()
    if end == "postpone":
        raise Postpone(60)
    if end == "fail":
        raise ValueError("the cause")


def wrong_backoff(error: BaseException, result: Any) -> Any:
    raise LookupError("no backoff")


def backoff_in_the_past(error: BaseException, result: Any) -> Any:
    return -1


@task
@options(max_attempts=3, backoff=wrong_backoff)
def fail_without_backoff() -> None:
    raise ValueError("the cause")


@task
@options(max_attempts=3, backoff=backoff_in_the_past)
def fail_into_the_past() -> None:
    raise ValueError("the cause")


@task
@options(max_attempts=3)
def refuse() -> None:
    raise Reject("never")


@task
@options(max_attempts=2, atomic=True, backoff=0)
def order_once(number: str) -> None:
    Order.objects.create(number=number)


@task
@options(max_attempts=2)
def note(value: str) -> None:
    Handled.objects.create(group="", topic="note", partition=0, offset=0, value=value)


@task(takes_context=True)
@options(max_attempts=3, backoff=0)
def die_once(context: Any) -> int:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(context.attempt)


@task
def die_at_first(marker: str) -> None:
    """End the process, unless somebody runs it once more."""
    if not Handled.objects.filter(value=marker).exists():
        note.func(marker)
        os.kill(os.getpid(), signal.SIGKILL)


not_a_task = len


@task
@options(unique="args", unique_until="finish", max_attempts=2, backoff=0)
def sync(account: int, *, wrong: bool = False) -> int:
    note.func(f"sync {account}")
    if wrong:
        raise ValueError("wrong")
    return account


@task
@options(unique="args", unique_for=600)
def once_in_a_window(account: int) -> None:
    note.func(f"window {account}")


def account_of(account: int, **more: object) -> int:
    return account


@task
@options(unique=account_of, unique_until="start")
def refresh(account: int, *, depth: int = 0) -> None:
    if depth:
        refresh.enqueue(account)
    note.func(f"refresh {account} {depth}")


@task(takes_context=True)
@options(max_attempts=3, backoff=0)
def until_cancelled(context: Any) -> None:
    backend: Any = task_backends["default"]
    note.func(backend.cancel(context.task_result.id))  # as somebody else does meanwhile
    if context.cancelled:
        raise TaskCancelled


@task(takes_context=True)
@options(max_attempts=2, backoff=0)
def told_too_late(context: Any, dies: bool) -> None:
    """Be cancelled in the first attempt, and end it before a look."""
    note.func(str(context.cancelled))
    if context.cancelled:
        raise TaskCancelled
    backend: Any = task_backends["default"]
    assert backend.cancel(context.task_result.id) == "running"
    if dies and Handled.objects.count() % 2:  # of two attempts the first one
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("the first attempt")


@task(takes_context=True)
def finishes_all_the_same(context: Any) -> None:
    backend: Any = task_backends["default"]
    assert backend.cancel(context.task_result.id) == "running"


@task
def batch_done(batch_id: int) -> None:
    note.func(f"batch {batch_id} done")


@task
def batch_failed(batch_id: int) -> None:
    note.func(f"batch {batch_id} failed")


@task(takes_context=True)
@options(max_attempts=5, backoff=0, atomic=True)
def note_now(context: Any) -> None:
    note.func(context.task_result.task.run_after.isoformat())


@task
@options(limit=1, limit_key=lambda account: account["id"], max_attempts=2, backoff=0)
def limited_by_id(account: Any) -> None:
    note.func(account["id"])


@task
@options(limit=2, limit_key="account", max_attempts=5, backoff=0)
def limited(account: int, number: int = 0) -> None:
    """Note when it begins and when it ends, by the clock of the host."""
    begun = time.time()
    time.sleep(0.02)
    note.func(f"{account} {number} {begun} {time.time()}")


@task(takes_context=True)
@options(limit=1, max_attempts=2, backoff=0)
def alone(context: Any, wrong: bool = False) -> None:
    note.func("alone")
    if wrong:
        raise ValueError("wrong")


@task
@options(limit=1, max_attempts=2, backoff=0)
def alone_and_dies(marker: str) -> None:
    if not Handled.objects.filter(value=marker).exists():
        note.func(marker)
        os.kill(os.getpid(), signal.SIGKILL)


def while_in_two_at_once() -> None:
    """Stands for what such a task does."""


@task
@options(limit=2, max_attempts=5, backoff=0)
def two_at_once() -> None:
    while_in_two_at_once()


def while_in_brief() -> None:
    """Stands for what a brief task does."""


@task
@options(timeout=600)
def brief() -> None:
    while_in_brief()


@task
@options(max_attempts=1000, backoff=0)
def begin_and_end(number: int) -> None:
    note.func(f"begin {number}")
    time.sleep(0.01)
    note.func(f"end {number}")

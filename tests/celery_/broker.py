"""Makes the Celery application of the tests of the broker, with its tasks.

A task that has begun writes a row: ``Handled(value=a name, offset=its process)``.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery, Task, current_app
from celery.exceptions import Reject, SoftTimeLimitExceeded
from django.db import connection, connections, transaction

from tests.hostapp.models import Handled

# On Django the first application becomes the default of the whole process. The tests beside these
# are to see Celery's own: it takes only JSON.
current_app._get_current_object()
broker: Any = Celery("broker", set_as_current=False)
broker.conf.update(
    broker_url="ems://",
    # JSON: other keys, such as the result backend.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_hijack_root_logger=False,
    accept_content=["json", "pickle"],
    result_accept_content=["json", "pickle"],
    result_backend=os.environ.get("EMS_TEST_RESULTS", "disabled://"),
    result_chord_retry_interval=0.1,
    task_routes={"tests.celery_.broker.elsewhere": {"queue": "other queue"}},
    broker_transport_options={"priority_steps": [3, 6]},
    beat_schedule={
        "beat": {"task": "tests.celery_.broker.record", "schedule": 0.5, "args": ["by beat"]}
    },
)


def ran(name: str) -> int:
    """Return how often a task was begun under this name."""
    return Handled.objects.filter(value=name).count()


def note(name: str) -> None:
    place = {"group": "celery", "topic": "celery", "partition": 0}
    Handled.objects.create(**place, offset=os.getpid(), value=name)


@broker.task
def record(name: str, seconds: float = 0.0) -> str:
    note(name)
    time.sleep(seconds)
    return name


@broker.task
def add(x: int, y: int) -> int:
    return x + y


@broker.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@broker.task
def elsewhere(name: str) -> None:
    note(name)


@broker.task(bind=True, max_retries=3)
def retried(self: Task, name: str) -> int:
    note(name)
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@broker.task(bind=True, max_retries=3)
@transaction.atomic
def retried_in_transaction(self: Task, name: str, beside: Any = None) -> None:
    note(name)
    if beside is not None:
        beside.delay()
    raise self.retry(countdown=0)


@broker.task(bind=True)
@transaction.atomic
def retried_in_a_failed_transaction(self: Task) -> None:
    transaction.set_rollback(True)  # as after an error of the database: no read is possible
    raise self.retry(countdown=0)


@broker.task(bind=True)
def retried_without_a_connection(self: Task) -> None:
    connection.close()  # as Celery does before each task
    raise self.retry(countdown=0)


@broker.task(bind=True)
def retried_on_a_lost_connection(self: Task) -> None:
    with connection.cursor() as mine, connections["other"].cursor() as killer:
        mine.execute("SELECT CONNECTION_ID()")
        killer.execute("KILL %s", mine.fetchone())
    raise self.retry(countdown=0)


@broker.task(bind=True)
@transaction.atomic(using="other")
def retried_in_transaction_on_other(self: Task) -> None:
    raise self.retry(countdown=0)


@broker.task(bind=True)
@transaction.atomic
def replaced_in_transaction(self: Task, name: str, replacement: Any) -> None:
    note(name)
    raise self.replace(replacement)


@broker.task(autoretry_for=(ZeroDivisionError,), retry_backoff=False, default_retry_delay=0)
def divided(name: str) -> None:
    note(name)
    if ran(name) < 3:
        raise ZeroDivisionError


@broker.task
def failing() -> None:
    raise ValueError("it fails")


@broker.task
def on_error(request: Any, exc: Any, traceback: Any) -> None:
    note(f"error of {request.id}")


@broker.task(soft_time_limit=0.3)
def soft(name: str) -> None:
    try:
        time.sleep(30)
    except SoftTimeLimitExceeded:
        note(name)


@broker.task(time_limit=0.5)
def hard(name: str) -> None:
    note(name)
    time.sleep(30)


@broker.task
def rejected(name: str) -> None:
    note(name)
    raise Reject("never", requeue=False)


@broker.task
def requeued(name: str) -> None:
    note(name)
    if ran(name) < 3:
        raise Reject("not now", requeue=True)


@broker.task(bind=True)
def redelivered(self: Task, name: str) -> None:
    note(f"{name} {self.request.delivery_info['redelivered']}")
    if ran(f"{name} False") + ran(f"{name} True") < 2:
        raise Reject("once more", requeue=True)


def mark(name: str) -> None:
    """Note a name without the database: a line with the process in a file."""
    line = f"{name} {os.getpid()}\n".encode()
    file = os.open(os.environ["EMS_TEST_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@broker.task
def marked(name: str, seconds: float = 0.0) -> None:
    mark(name)
    time.sleep(seconds)


@broker.task
def deadly(name: str, *, whole: bool) -> None:
    """End the process that runs it; with ``whole`` its parent, the worker, first."""
    mark(name)
    if whole:
        os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)

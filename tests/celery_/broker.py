"""Makes the Celery application of the tests of the broker, with its tasks.

A task that runs writes a row: ``Handled(value=its name, offset=its process)``.
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery, Task

from tests.hostapp.models import Handled

broker: Any = Celery("broker", set_as_current=False)
broker.conf.update(
    broker_url="ems://",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_hijack_root_logger=False,
)


def ran(name: str) -> int:
    """Return how often a task was begun under this name."""
    return Handled.objects.filter(value=name).count()


def note(name: str) -> None:
    Handled.objects.create(
        group="celery", topic="celery", partition=0, offset=os.getpid(), value=name
    )


@broker.task
def record(name: str, seconds: float = 0.0) -> str:
    note(name)
    time.sleep(seconds)
    return name


@broker.task(bind=True)
def show(self: Task, name: str) -> None:
    note(f"{name} {self.request.delivery_info['redelivered']}")

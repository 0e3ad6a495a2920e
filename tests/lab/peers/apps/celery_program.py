"""Celery, on Redis, RabbitMQ or EMS, as it is set up when no task may be lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import django
from celery import Celery

from tests.lab.peers.apps.common import THREADS, URL, handle, main, run_worker

setup: Callable[[], object] = lambda: None  # noqa: E731
if on_ems := os.environ.get("PEER_APP") == "celery":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.lab.peers.apps.django_settings"
    django.setup()
    from tests.lab.peers.apps.databases import make as setup

app = Celery("peers", broker="ems://" if on_ems else URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    broker_transport_options=(
        {"visibility_timeout": 15} if URL.startswith("redis") else {"confirm_publish": True}
    ),
)


@app.task(name="note")
def note(message: dict[str, Any]) -> None:
    handle(message)


def work(kind: str) -> None:
    run_worker(
        *("-m", "celery", "-A", "tests.lab.peers.apps.celery_program", "worker", "-l", "ERROR"),
        *("-c", str(THREADS), "--without-gossip", "--without-mingle"),
    )


if __name__ == "__main__":
    main(note.delay, work, setup)

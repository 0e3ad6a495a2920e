"""The task; both backends run it."""

from __future__ import annotations

from typing import Any

from django.tasks import task

from tests.lab.peers.apps.common import handle


@task()
def note(message: dict[str, Any]) -> None:
    handle(message)

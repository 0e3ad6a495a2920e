"""Adapts the backend to what the suites of others look into: results in a list, and at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streams.contrib.tasks import EmsBackend, queues
from streams.contrib.tasks.models import TaskRun
from streams.models import Message
from streams.testing import drain


class Keeping(EmsBackend):
    """Stands for Django's DummyBackend: what is enqueued waits."""

    @property
    def results(self) -> list[Any]:
        found = []
        for message in Message.objects.order_by("pk"):
            headers = message.headers or {}
            found.append(self.get_result(f"{message.pk}.{headers['id']}"))
        return found

    def clear(self) -> None:
        Message.objects.all().delete()
        TaskRun.objects.all().delete()


class Draining(EmsBackend):
    """Stands for Django's ImmediateBackend: what is enqueued has run when enqueue() returns."""

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        waiting = super().enqueue(task, args, kwargs)
        queues.register()
        drain()
        return self.get_result(waiting.id)

"""Stands for django-tasks-db in its own tests: what these import of it, over our tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.core.management import call_command as command
from django.db.models import QuerySet
from django.db.transaction import atomic as exclusive_transaction
from django.utils import timezone

from streams import send
from streams.contrib.tasks import EmsBackend, queues
from streams.contrib.tasks.compat import TaskResultStatus, task_backends
from streams.contrib.tasks.messages import of_message
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.names import GROUP, topic_of
from streams.models import Consumer, Message
from tests.consuming import consume_the_rest
from tests.processes import wait_for
from tests.settings import RUN

__all__ = [
    "CHILD",
    "DBTaskResult",
    "DatabaseBackend",
    "call_command",
    "end_what_died",
    "enqueue_first",
    "exclusive_transaction",
    "wait_until_it_runs",
]

CHILD = {"EMS_TEST_DB_NAME": f"test_ems_{RUN}"}  # what a worker needs of the environment


class DatabaseBackend(EmsBackend):
    """The backend under its name there."""


class Results:
    """The tasks that a filter lets pass, in the order in which they would run."""

    def __init__(self, *filters: Callable[[DBTaskResult], bool]) -> None:
        self._filters = filters

    def __iter__(self) -> Iterator[DBTaskResult]:
        found = [DBTaskResult(pk) for pk in Message.objects.values_list("pk", flat=True)]
        for one in sorted(found, key=lambda one: one.place):
            if all(passes(one) for passes in self._filters):
                yield one

    def _where(self, passes: Callable[[DBTaskResult], bool]) -> Results:
        return Results(*self._filters, passes)

    def all(self) -> Results:
        return self

    def filter(self, *, id: str) -> Results:  # noqa: A002 - as there
        return self._where(lambda one: one.id == id)

    def ready(self) -> Results:
        return self._where(lambda one: one.is_ready)

    def successful(self) -> Results:
        return self._where(lambda one: one.status == TaskResultStatus.SUCCESSFUL)

    def failed(self) -> Results:
        return self._where(lambda one: one.status == TaskResultStatus.FAILED)

    def count(self) -> int:
        return len(list(self))

    def get(self, **wanted: Any) -> DBTaskResult:
        (one,) = self.filter(**wanted)
        return one

    def create(
        self, *, args_kwargs: dict[str, Any], task_path: str, backend_name: str
    ) -> DBTaskResult:
        """Send the message of a task that cannot be enqueued."""
        headers = {"task": task_path, "backend": backend_name, "id": "by-hand"}
        headers["at"] = timezone.now().isoformat()
        return DBTaskResult(send(topic_of("default"), args_kwargs, headers=headers).message_id)

    def update(self, *, run_after: Any = None, **values: Any) -> None:
        """Change the rows of the tasks, or when their messages are due."""
        for one in self:
            if run_after:
                Message.objects.filter(pk=one.message.pk).update(due_at=run_after)
                continue
            if "started_at" in values:
                values |= {"last_attempted_at": values["started_at"], "attempts": 1}
            TaskRun.objects.update_or_create(
                {**one.envelope.columns, **values}, result_id=one.envelope.result_id
            )

    async def aupdate(self, **values: Any) -> None:
        await sync_to_async(self.update)(**values)

    def values(self, column: str) -> Any:
        return Message.objects.values(column)

    def select_for_update(self) -> QuerySet[Message]:
        return Message.objects.select_for_update()


class DBTaskResult:
    """A task: its message, and its row from the first start on."""

    objects = Results()

    def __init__(self, pk: int) -> None:
        self._pk = pk
        self.refresh_from_db()

    def refresh_from_db(self) -> None:
        envelope = of_message(self._pk, "default")
        assert envelope is not None
        self.envelope = envelope
        self.message = Message.objects.get(pk=self._pk)
        self.row = TaskRun.objects.filter(message_id=self._pk).first()

    @property
    def id(self) -> str:
        return self.envelope.result_id

    @property
    def task_path(self) -> str:
        return self.envelope.path

    @property
    def task(self) -> Any:
        return self.envelope.task()

    @property
    def task_result(self) -> Any:
        return task_backends[self.envelope.backend].get_result(self.id)

    @property
    def status(self) -> str:
        return self.row.status if self.row else TaskResultStatus.READY

    @property
    def is_ready(self) -> bool:
        due = self.message.due_at is None or self.message.due_at <= timezone.now()
        return due and self.status == TaskResultStatus.READY

    @property
    def place(self) -> tuple[Any, ...]:
        return -self.envelope.priority, self.message.due_at, self._pk

    @property
    def worker_ids(self) -> list[str]:
        return self.row.worker_ids if self.row else []

    @property
    def traceback(self) -> str:
        return str(self.row.errors[-1]["traceback"]) if self.row else ""


def call_command(
    name: str,
    *,
    queue_name: str = "default",
    exclude_queues: str = "",
    backend_name: str = "default",
    **others: Any,
) -> None:
    """Run ems_consume as db_worker would run, until nothing is left."""
    assert name == "db_worker"
    backend = task_backends[backend_name]
    if not isinstance(backend, DatabaseBackend):
        return  # ems_consume knows no other
    queues.register()
    chosen = backend.queues if queue_name == "*" else {queue_name}
    topics = [topic_of(queue) for queue in chosen if queue != exclude_queues]
    command("ems_consume", topic=topics, drain=True, verbosity=0)


def enqueue_first(case: Any) -> None:
    """Enqueue a task, and delete it: the first one also makes the topic, and reads the settings."""
    import_module("tasks.tasks").noop_task.enqueue()
    Message.objects.all().delete()


def wait_until_it_runs() -> None:
    """Wait until all tasks have begun; without any, until a worker is there."""

    def runs() -> bool:
        if messages := Message.objects.count():
            return TaskRun.objects.count() == messages
        return Consumer.objects.exists()

    wait_for(runs)


def end_what_died() -> None:
    """Let the lease of a killed worker expire, and other workers run."""
    queues.register()
    consume_the_rest(GROUP)

"""What a channel does with what Celery publishes, without a worker: nothing is lost in silence."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from celery import Task, chain
from celery.app.trace import build_tracer
from celery.exceptions import Reject
from django.db import transaction

from streams.errors import TaskRefused
from streams.models import Message
from tests.celery_ import broker as tasks
from tests.celery_.broker import broker, ran, record

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def run(task: Task, *args: Any) -> Any:
    """Run a task as a process of a pool does; return its result, or its error."""
    one = str(uuid4())
    request = {"id": one, "root_id": one, "args": args, "kwargs": {}, "delivery_info": {}}
    found = build_tracer(task.name, task, app=broker)(one, args, {}, request)[0]
    error = getattr(found, "exception", found)
    return getattr(error, "exc", error)  # as it was before it was pickled


def sent() -> list[str]:
    messages = Message.objects.filter(partition__topic__name="celery.celery")
    return sorted(messages.values_list("tag", flat=True))


@pytest.mark.mysql
def test_a_retry_stands_though_the_transaction_of_its_task_is_rolled_back() -> None:
    run(tasks.retried_in_transaction, "one")
    assert not ran("one")
    assert sent() == [tasks.retried_in_transaction.name]


@pytest.mark.mysql
@pytest.mark.parametrize(
    "replacement",
    [record.si("it"), chain(record.si("it"), record.si("then"))],
    ids=["task", "chain"],
)
def test_what_replaces_a_task_stands_though_its_transaction_is_rolled_back(
    replacement: Any,
) -> None:
    run(tasks.replaced_in_transaction, "one", replacement)
    assert not ran("one")
    assert record.name in sent()


@pytest.mark.mysql
def test_what_a_task_sends_besides_is_a_part_of_its_transaction() -> None:
    run(tasks.retried_in_transaction, "one", record.si("rolled back"))
    assert sent() == [tasks.retried_in_transaction.name]


@pytest.mark.parametrize("task", ["retried_in_transaction", "replaced_in_transaction"])
def test_where_a_retry_would_be_rolled_back_it_is_refused(vendor: str, task: str) -> None:
    if vendor != "sqlite":
        pytest.skip("there another connection writes it")
    error = run(getattr(tasks, task), "one", record.si("rolled back"))
    if isinstance(error, Reject):  # so Celery passes on what a retry raises
        error = error.reason
    assert isinstance(error, TaskRefused)
    assert "after the transaction" in str(error)
    assert sent() == []
    with transaction.atomic():  # no task runs
        record.delay("committed")
    assert sent() == [record.name]


@pytest.mark.django_db(databases=["default", "other"])
def test_a_retry_in_a_test_case_is_a_part_of_its_transaction() -> None:
    run(tasks.retried_in_transaction, "one")
    assert sent() == []

"""A queue has a rate, and a task has a time of its own after which its process ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from streams.consume.registry import find
from streams.contrib.tasks.compat import InvalidTaskError
from streams.contrib.tasks.settings import TaskSettings
from streams.log.sequencer import sequence
from streams.models import Delivery
from tests.consuming import Process
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads


def test_a_rate_is_that_of_the_group_of_its_queue(use_tasks: Callable[..., Any]) -> None:
    use_tasks(OPTIONS={"rate": {"emails": "5/s"}})
    emails, default = find("tasks.emails", "tasks"), find("tasks.default", "tasks")
    assert emails is not None
    assert default is not None
    assert (str(emails.rate), default.rate) == ("5/s, burst=1", None)
    use_tasks(OPTIONS={"rate": "5/s"})
    assert find("tasks.default", "tasks") is not None


@pytest.mark.parametrize("wrong", ["5", {"emails": "x"}, "2000000/s"])
def test_a_wrong_rate_is_refused_with_the_settings(wrong: Any) -> None:
    with pytest.raises(ImproperlyConfigured):
        TaskSettings.of("default", [], {"rate": wrong})


@pytest.mark.parametrize("wrong", [0, -1, True, "60"])
def test_a_wrong_timeout_is_refused(work: Any, wrong: Any) -> None:
    with pytest.raises(InvalidTaskError):
        replace(work.add, timeout=wrong)


@pytest.mark.django_db(transaction=True)
def test_the_process_of_a_task_that_takes_longer_than_its_timeout_ends(
    use_tasks: Callable[..., Any], in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease lasts as long as that of its queue, so nobody runs the task beside it."""
    work = use_tasks(QUEUES=["default"], OPTIONS={"timeout": 1800})
    began, end = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        end.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(work, "while_in_brief", hang)
    result = work.brief.enqueue()
    sequence("default")
    process = Process("tasks")
    step = in_thread(process.worker.step)
    assert began.wait(PATIENCE_SECONDS)
    (calls,) = process.held.all()
    assert calls.time_left().total_seconds() > 1000
    monkeypatch.setattr(type(calls._caller), "_elapsed", lambda self: 599.0)
    process.heartbeat.step()
    assert process.lifecycle.failure is None
    monkeypatch.setattr(type(calls._caller), "_elapsed", lambda self: 601.0)
    process.heartbeat.step()
    assert "hangs" in str(process.lifecycle.failure)
    assert Delivery.objects.held().count() == 1
    end.set()
    step.result(PATIENCE_SECONDS)
    result.refresh()
    assert result.status == "SUCCESSFUL"

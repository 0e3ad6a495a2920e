"""A task is enqueued with the transaction, run by a consumer, and has its result in a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from streams.contrib.tasks.compat import (
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_finished,
)
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.task_options import _GIVEN
from streams.models import ConsumerGroup, DeadMessage, Message
from streams.operate.replay import spans, start
from streams.operate.target import Target
from streams.testing import advance, drain
from tests.tasks_.receiving import receiving

pytestmark = pytest.mark.django_db


def test_a_task_runs_and_its_result_is_found_by_its_id(work: Any) -> None:
    result = work.add.enqueue(1, two=2)
    assert (result.status, result.args, result.kwargs) == ("READY", [1], {"two": 2})
    assert drain().done == 1
    found = work.add.get_result(result.id)
    assert (found.status, found.return_value, found.attempts) == ("SUCCESSFUL", 3, 1)
    assert found.enqueued_at == result.enqueued_at <= found.started_at <= found.finished_at
    assert found.started_at == found.last_attempted_at


@pytest.mark.django_db(transaction=True)
def test_an_enqueue_is_one_insert(work: Any) -> None:
    work.add.enqueue(1, 1)  # makes the topic
    with CaptureQueriesContext(connection) as seen:
        work.add.enqueue(1, 2)
    assert [one["sql"].split()[0] for one in seen] == ["INSERT"]
    with transaction.atomic(), CaptureQueriesContext(connection) as seen:
        work.add.enqueue(1, 2)
    assert [one["sql"].split()[0] for one in seen] == ["INSERT"]


def test_a_rolled_back_task_never_runs(work: Any) -> None:
    work.add.enqueue(1, 1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        lost = work.add.enqueue(2, 2)
        raise ZeroDivisionError
    assert drain().done == 1
    with pytest.raises(TaskResultDoesNotExist):
        work.add.get_result(lost.id)


def test_a_waiting_task_is_its_message_alone(work: Any) -> None:
    result = work.add.using(priority=7).enqueue(1, 2)
    assert not TaskRun.objects.exists()
    found = work.add.get_result(result.id)
    assert found == result
    assert found.task == result.task
    assert Message.objects.get().tag == "tests.tasks_.work.add"


@pytest.mark.parametrize("wrong", ["", "x", "1", "1.", ".", "9" * 30, "1.abcdefghijklmnop"])
def test_an_id_that_nobody_was_given_finds_nothing(work: Any, wrong: str) -> None:
    work.add.enqueue(1, 2)
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(wrong)


def test_a_failed_task_is_a_dead_letter_that_shows_its_error(work: Any) -> None:
    result = work.fail.enqueue("no")
    assert drain().dead == 1
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "ValueError: no" in error.traceback
    letter = DeadMessage.objects.get()
    assert (letter.error_class, letter.error) == ("ValueError", "no")


def test_a_result_that_json_cannot_hold_fails_the_task(work: Any) -> None:
    result = work.unserialisable.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)


def test_an_async_task_runs(work: Any) -> None:
    result = work.add_slowly.enqueue(2, 3)
    drain()
    assert work.add_slowly.get_result(result.id).return_value == 5


@pytest.mark.django_db(transaction=True)
def test_async_code_enqueues_and_looks_up(work: Any) -> None:
    result = async_to_sync(work.add.aenqueue)(1, 2)
    drain()
    async_to_sync(result.arefresh)()
    assert result.return_value == 3


def test_a_task_waits_until_run_after(work: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = work.add.using(run_after=later).enqueue(1, 2)
    assert drain().done == 0
    assert work.add.get_result(result.id).task.run_after == later
    advance(timedelta(hours=1))
    assert drain().done == 1


def test_a_naive_run_after_is_of_the_current_time_zone(work: Any, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    naive = timezone.now().replace(microsecond=0) + timedelta(hours=1)
    result = work.add.using(run_after=naive).enqueue(1, 2)
    assert drain().done == 0
    assert work.add.get_result(result.id).task.run_after == naive
    advance(timedelta(hours=1))
    assert drain().done == 1


def test_a_failed_task_is_run_again_as_its_options_say(work: Any) -> None:
    result = work.fail_until.enqueue(3)
    assert drain().failed == 1
    result.refresh()
    assert (result.status, len(result.errors), result.attempts) == ("READY", 1, 1)
    assert result.finished_at is None
    started = result.started_at
    for _attempt in range(2):
        advance(timedelta(seconds=5))
        drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 3)
    assert (result.started_at, len(result.errors)) == (started, 2)
    assert result.last_attempted_at > started


def test_a_task_without_attempts_left_has_failed(work: Any) -> None:
    result = work.fail_until.enqueue(4)
    for _attempt in range(3):
        drain()
        advance(timedelta(seconds=5))
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 3, 3)
    assert DeadMessage.objects.get().error == "attempt 3"


def test_a_task_that_waits_has_failed_once_it_may_have_fewer_attempts(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = work.fail_until.enqueue(3)
    drain()
    monkeypatch.setitem(getattr(work.fail_until.func, _GIVEN), "max_attempts", 1)
    monkeypatch.setattr(work, "fail_until", replace(work.fail_until))
    ended: list[Any] = []
    with receiving(task_finished, ended):
        advance(timedelta(seconds=5))
        assert drain().dead == 1
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 1, 1)
    assert DeadMessage.objects.get().error == "builtins.ValueError"
    assert [(one.id, one.status, len(one.errors)) for one in ended] == [(result.id, "FAILED", 1)]


def test_a_task_that_waits_has_failed_once_it_is_gone(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.fail_until.enqueue(3)
    drain()
    monkeypatch.delattr(work, "fail_until")
    advance(timedelta(seconds=5))
    assert drain().dead == 1
    row = TaskRun.objects.get()
    assert (row.status, row.attempts, len(row.errors)) == ("FAILED", 1, 2)
    assert row.finished_at is not None
    assert DeadMessage.objects.get().error_class == "ImportError"


def test_the_backoff_of_the_backend_holds_for_tasks_without_one(use_tasks: Any) -> None:
    work = use_tasks(OPTIONS={"max_attempts": 2, "backoff": 30})
    result = work.fail.enqueue("no")
    drain()
    advance(timedelta(seconds=29))
    assert drain().failed == 0
    advance(timedelta(seconds=1))
    assert drain().dead == 1
    result.refresh()
    assert result.attempts == 2


@pytest.mark.parametrize(
    ("task", "wrong"), [("fail_without_backoff", LookupError), ("fail_into_the_past", ValueError)]
)
def test_a_backoff_that_fails_ends_the_task_beside_its_own_error(
    work: Any, task: str, wrong: type[Exception]
) -> None:
    result = getattr(work, task).enqueue()
    assert drain().dead == 1
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert [one.exception_class for one in result.errors] == [ValueError, wrong]
    assert "the cause" in result.errors[1].traceback
    assert DeadMessage.objects.get().error_class == wrong.__name__


def test_a_task_says_itself_when_it_is_to_be_run_again(work: Any) -> None:
    work.ask_again.enqueue()
    drain()
    advance(timedelta(seconds=59))
    assert drain().failed == 0
    advance(timedelta(seconds=1))
    assert drain().failed == 1


def test_a_task_that_postpones_itself_spends_no_attempt(work: Any) -> None:
    result = work.wait_for.enqueue(3)
    for _wait in range(2):
        drain()
        result.refresh()
        assert (result.status, result.attempts, result.errors) == ("READY", 0, [])
        advance(timedelta(seconds=60))
    drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 1, 1)


def test_a_task_that_rejects_itself_has_failed_at_once(work: Any) -> None:
    result = work.refuse.enqueue()
    assert drain().dead == 1
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 1)


def test_a_redriven_task_has_all_its_attempts_again(work: Any) -> None:
    from streams.consume.outcome.dead_letter import redrive

    result = work.fail_until.enqueue(5)
    for _attempt in range(3):
        drain()
        advance(timedelta(seconds=5))
    assert redrive(DeadMessage.objects.get())
    drain()
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 4)
    advance(timedelta(seconds=5))
    drain()
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 5)


def test_a_task_that_has_run_is_replayed_with_all_its_attempts(work: Any) -> None:
    result = work.add.enqueue(1, 1)
    drain()
    group = ConsumerGroup.objects.get(topic__name="tasks.default")
    start(group, spans(group, Target.parse("0"), Target.parse("1"), "default"), "default")
    assert drain().done == 1
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 2)


def test_metadata_goes_along_and_is_written_by_the_task(work: Any) -> None:
    result = work.tell_attempt.using(metadata={"who": "me"}).enqueue()
    assert work.tell_attempt.get_result(result.id).metadata == {"who": "me"}
    drain()
    assert work.tell_attempt.get_result(result.id).metadata == {"who": "me", "attempt": 1}


def test_what_is_no_task_is_refused(work: Any) -> None:
    from streams import send
    from streams.contrib.tasks.envelope import headers_of

    send("tasks.default", {"args": [], "kwargs": {}})
    headers = headers_of(work.add, timezone.now())
    content: dict[str, Any] = {"args": [], "kwargs": {}}
    send("tasks.default", content, headers={**headers, "task": "tests.tasks_.work.not_a_task"})
    send("tasks.default", content, headers={**headers, "task": "os.system"})
    assert drain().dead == 3
    shown = DeadMessage.objects.order_by("pk").values_list("error_class", flat=True)
    suspicious = "django.core.exceptions.SuspiciousOperation"
    assert list(shown) == ["streams.contrib.tasks.envelope.NotATask", suspicious, suspicious]


@pytest.mark.parametrize(
    "wrong", [{"max_attempts": 0}, {"max_attempts": True}, {"backoff": -1}, {"atomic": "yes"}]
)
def test_wrong_options_of_a_task_are_refused_where_it_is_defined(
    work: Any, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTaskError):
        replace(work.add, **wrong)


def test_a_name_that_is_no_option_is_refused(work: Any) -> None:
    from streams.contrib.tasks import options

    with pytest.raises(InvalidTaskError, match="max_attempt'"):
        options(max_attempt=3)

"""What the columns of a task cannot hold is refused at the enqueue, or ends as a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from streams import send
from streams.contrib.tasks import schedules
from streams.contrib.tasks.acts import EditTask, RunSchedule
from streams.contrib.tasks.batches import end_batches
from streams.contrib.tasks.compat import task_backends, task_finished
from streams.contrib.tasks.envelope import headers_of
from streams.contrib.tasks.models import TaskBatch, TaskRun, TaskSchedule
from streams.contrib.tasks.task_options import _GIVEN
from streams.errors import InvalidMessage
from streams.models import DeadMessage, DedupKey, Message, UtcNow
from streams.operate.acts.act import Consent
from streams.rules.json_column import MAX_DEPTH, MAX_NUMBER
from streams.testing import advance, drain
from tests.hostapp.models import Handled
from tests.tasks_.receiving import receiving

pytestmark = pytest.mark.django_db(transaction=True)

# The arguments of a task are in a list, and this list is in a dict.
DEEPEST = MAX_DEPTH - 2


def nested(levels: int) -> Any:
    value: Any = 1
    for _level in range(levels):
        value = [value]
    return value


WRONG = {"depth": nested(DEEPEST + 1), "number": {"n": [-MAX_NUMBER]}}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_arguments_that_a_column_cannot_hold_are_refused_before_anything_is_written(
    work: Any, wrong: Any
) -> None:
    backend: Any = task_backends["default"]
    unique = replace(work.note, unique="task")
    enqueues: list[Callable[[], Any]] = [
        lambda: work.note.enqueue(wrong),
        lambda: work.note.enqueue(value=wrong),
        lambda: unique.enqueue(wrong),
        lambda: backend.enqueue_many(work.note, [(("1",), {}), ((wrong,), {})]),
        lambda: backend.enqueue_batch([(work.note, ["1"], {}), (work.note, [wrong], {})]),
        lambda: backend.enqueue_keyed(work.note, [wrong], {}, "key"),
    ]
    for enqueue in enqueues:
        with pytest.raises(InvalidMessage, match="The arguments are nested deeper"):
            enqueue()
    assert not Message.objects.exists()
    assert not TaskBatch.objects.exists()


@pytest.mark.parametrize("wrong", [nested(MAX_DEPTH), MAX_NUMBER], ids=["depth", "number"])
def test_metadata_that_a_column_cannot_hold_is_refused(work: Any, wrong: Any) -> None:
    with pytest.raises(InvalidMessage, match="The metadata is nested deeper"):
        work.tell_attempt.using(metadata={"a": wrong}).enqueue()
    assert not Message.objects.exists()


def test_each_server_keeps_the_deepest_arguments_and_the_largest_number(work: Any) -> None:
    arguments = [nested(DEEPEST), MAX_NUMBER - 1]
    result = work.count.using(metadata={"a": nested(MAX_DEPTH - 1)}).enqueue(*arguments)
    assert drain().done == 1
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 2)
    assert result.args[0] == arguments[0]


@pytest.mark.parametrize("end", ["return", "save", "postpone", "fail"])
@pytest.mark.parametrize("how", ["object", "nan", "text", "depth"])
def test_metadata_that_a_column_cannot_hold_fails_the_task_at_once(
    work: Any, how: str, end: str
) -> None:
    """What it had saved before is kept, and the error of the task itself is shown."""
    result = work.spoil.enqueue(how, end)
    ended: list[Any] = []
    with receiving(task_finished, ended):
        assert drain().dead == 1
    result = work.spoil.get_result(result.id)
    assert (result.status, result.attempts, result.metadata) == ("FAILED", 1, {"kept": 1})
    assert [one.metadata for one in ended] == [{"kept": 1}]
    wrong = {"object": TypeError, "nan": ValueError, "depth": InvalidMessage}
    expected = ValueError if end == "fail" else wrong.get(how, UnicodeEncodeError)
    assert [one.exception_class for one in result.errors] == [expected]
    assert DeadMessage.objects.get().error_class.endswith(expected.__name__)
    assert Handled.objects.count() == 1


def test_metadata_that_cannot_be_stored_does_not_spend_the_attempts_that_are_left(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(getattr(work.spoil.func, _GIVEN), "backoff", 5)
    monkeypatch.setattr(work, "spoil", replace(work.spoil))
    result = work.spoil.enqueue("object", "return")
    for attempt in (1, 2, 3):
        drain()
        result.refresh()
        assert (result.attempts, len(result.errors)) == (attempt, attempt)
        advance(timedelta(seconds=5))
    assert (result.status, Handled.objects.count()) == ("FAILED", 3)


# On MariaDB the depth is too much, on MySQL the number; earlier versions took both.
EARLIER = [nested(40), 10 * MAX_NUMBER]


def sent_earlier(task: Any, **headers: str) -> str:
    """Send a task as an earlier version, or somebody else, has sent it; return its id."""
    headers = {**headers_of(task, timezone.now()), **headers}
    content = {"args": EARLIER, "kwargs": {}}
    sent = send("tasks.default", content, headers=headers, dedup_key="key", dedup_window=600)
    return f"{sent.message_id}.{headers['id']}"


@pytest.mark.mysql
@pytest.mark.parametrize("until", ["start", "finish"])
def test_a_task_whose_arguments_the_server_does_not_take_has_failed(work: Any, until: str) -> None:
    batch = TaskBatch.objects.create(backend="default", total=1)
    named = sent_earlier(work.fail_until, unique=until, batch=str(batch.pk))
    assert drain().dead == 1
    result = work.fail_until.get_result(named)
    assert (result.status, result.args, result.attempts) == ("FAILED", [], 1)
    assert result.errors[0].exception_class.__name__ == "RowRefused"
    assert DeadMessage.objects.get().error_class.endswith("RowRefused")
    assert not DedupKey.objects.exclude(message_id=None).exists()
    assert end_batches("default") == 1


@pytest.mark.mysql
def test_a_task_without_any_row_is_a_dead_letter(work: Any) -> None:
    sent_earlier(work.note, id="x" * 1000, unique="finish")
    assert drain().dead == 1
    assert not DedupKey.objects.exclude(message_id=None).exists()
    assert DeadMessage.objects.get().error_class.endswith("RowRefused")
    assert not TaskRun.objects.exists()


@pytest.mark.mysql
def test_a_task_whose_row_is_refused_has_failed_also_after_a_kill(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row without arguments is there already."""
    from streams.contrib.tasks.work import _Attempt

    named = sent_earlier(work.note)
    with monkeypatch.context() as patch:
        patch.setattr(_Attempt, "_tell_start", lambda attempt: 1 / 0)
        assert drain().failed == 1
    assert TaskRun.objects.get().status == "RUNNING"
    advance(timedelta(days=1))
    assert drain().dead == 1
    assert work.note.get_result(named).status == "FAILED"


def test_edited_arguments_that_a_column_cannot_hold_are_refused(work: Any) -> None:
    work.add.enqueue(1, 1)
    drain()
    row = TaskRun.objects.get()
    for wrong in (nested(DEEPEST + 1), MAX_NUMBER):
        act = EditTask(arguments=f'{{"args": [{wrong}]}}')
        with pytest.raises(InvalidMessage, match="nested deeper"):
            act.preview(row, "default")
        with pytest.raises(InvalidMessage, match="nested deeper"):
            act.run(row, "default", Consent("somebody"))
    row.refresh_from_db()
    assert row.copies == 0
    assert Message.objects.count() == 1


def test_a_schedule_with_arguments_that_a_column_cannot_hold_sends_nothing(
    use_tasks: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"task": "tests.tasks_.work.note", "every": 1, "args": [nested(DEEPEST + 1)]}
    use_tasks(OPTIONS={"schedules": {"wrong": wrong}})
    row = TaskSchedule.objects.create(name="wrong", last_tick_at=UtcNow())
    with pytest.raises(InvalidMessage, match="nested deeper"):
        RunSchedule().run(row, "default", Consent("somebody"))
    assert schedules.enqueue_due("default") == 0
    assert "The schedule wrong fails: The arguments are nested deeper" in caplog.text
    assert not Message.objects.exists()

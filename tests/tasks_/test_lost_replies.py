"""An act on a task or a schedule is done once, and said to be done, if a reply is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams.contrib.tasks.acts import EditTask, PauseSchedule, ResumeSchedule, RunSchedule
from streams.contrib.tasks.models import TaskRun, TaskSchedule
from streams.database import retrying
from streams.errors import PreviewStale
from streams.models import Message, UtcNow
from streams.operate.acts.act import Consent
from streams.testing import drain
from tests.proxy import Proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql]

DIGEST = {"task": "tests.tasks_.work.note", "every": "1h", "args": ["digest"]}


@pytest.fixture
def digest(use_tasks: Callable[..., Any], transactional_db: None) -> TaskSchedule:
    use_tasks(OPTIONS={"schedules": {"digest": DIGEST}})
    return TaskSchedule.objects.create(name="digest", last_tick_at=UtcNow())


@pytest.fixture
def ended(digest: TaskSchedule) -> TaskRun:
    from tests.tasks_ import work

    work.note.enqueue("1")
    drain()
    return TaskRun.objects.get()


def rows(ended: TaskRun, digest: TaskSchedule) -> dict[Any, Any]:
    return {EditTask: ended, RunSchedule: digest}


@pytest.mark.parametrize("act", [EditTask, RunSchedule])
@pytest.mark.parametrize("previewed", [True, False])
def test_a_task_is_enqueued_once_if_the_reply_to_the_commit_is_lost(
    ended: TaskRun, digest: TaskSchedule, proxied: Proxy, act: Any, previewed: bool
) -> None:
    row = rows(ended, digest)[act]
    shown = act().preview(row, "default").shown if previewed else None
    proxied.lose_reply_to(b"COMMIT")
    done = act().carry_out(row, "default", Consent("ann", shown))
    assert proxied.fired == [b"COMMIT"]
    copy = Message.objects.exclude(pk=ended.message_id).get()
    assert done.result_id.startswith(f"{copy.pk}.")
    row.refresh_from_db()
    assert (row.copies if act is EditTask else row.runs) == 1
    if previewed:
        assert done.shown == shown
        with pytest.raises(PreviewStale):
            act().carry_out(row, "default", Consent("ann", shown))


@pytest.mark.parametrize("act", [EditTask, RunSchedule])
@pytest.mark.parametrize("committed", [True, False])
def test_what_another_operator_does_between_two_tries_is_told_apart(
    ended: TaskRun,
    digest: TaskSchedule,
    proxied: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    act: Any,
    committed: bool,
) -> None:
    row = rows(ended, digest)[act]
    shown = act().preview(row, "default").shown
    (proxied.lose_reply_to if committed else proxied.cut_before)(b"COMMIT")
    other: list[Any] = []

    def meanwhile(*about: Any) -> None:
        other.append(act().carry_out(row, "default", Consent("bob")))

    monkeypatch.setattr(retrying, "count", meanwhile)  # it counts the tries, between two
    ann = Consent("ann", shown)
    if committed:
        other.append(act().carry_out(row, "default", ann))
    else:
        with pytest.raises(PreviewStale):
            act().carry_out(row, "default", ann)
    assert proxied.fired == [b"COMMIT"]
    copies = Message.objects.exclude(pk=ended.message_id).values_list("pk", flat=True)
    assert {int(one.result_id.split(".")[0]) for one in other} == {*copies}
    assert len(other) == len(copies) == 1 + committed


def test_a_unique_task_that_has_ended_before_the_next_try_is_not_enqueued_again(
    use_tasks: Callable[..., Any], proxied: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end frees the key by which it is unique, and not that of the act."""
    work = use_tasks()
    work.sync.enqueue(1)
    drain()
    proxied.lose_reply_to(b"COMMIT")
    monkeypatch.setattr(retrying, "count", lambda *about: drain())
    done = EditTask().carry_out(TaskRun.objects.get(), "default", Consent("ann"))
    drain()
    assert proxied.fired == [b"COMMIT"]
    assert TaskRun.objects.latest("pk").result_id == done.result_id
    assert TaskRun.objects.count() == 2


def test_a_pause_whose_reply_is_lost_is_said_to_be_done(
    digest: TaskSchedule, proxied: Proxy
) -> None:
    acts: list[Any] = [PauseSchedule, ResumeSchedule]
    for act in acts:
        proxied.lose_reply_to(b"UPDATE `ems_task_schedule`")
        assert act().carry_out(digest, "default", Consent("ann")).changed
        assert not act().carry_out(digest, "default", Consent("ann")).changed
    assert len(proxied.fired) == len(acts)

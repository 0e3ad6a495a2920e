"""What an operator does with tasks, by the admin and by the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.urls import reverse

from streams import consumer, signals
from streams.consume.outcome.dead_letter import redrive
from streams.contrib.tasks.acts import (
    EditTask,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
    RunTaskAgain,
)
from streams.contrib.tasks.batches import end_batches
from streams.contrib.tasks.checks import check_groups, check_names, of_backend
from streams.contrib.tasks.compat import TaskResultDoesNotExist, task_backends
from streams.contrib.tasks.messages import of_message
from streams.contrib.tasks.models import TaskRun, TaskSchedule
from streams.errors import InvalidValue, PreviewStale
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    State,
    UtcNow,
)
from streams.operate.acts.act import Consent
from streams.operate.replay import spans, start
from streams.operate.target import Target
from streams.testing import advance, drain
from tests.admin.conftest import As, as_role  # noqa: F401 - a fixture
from tests.contract.faces import Page, Refused
from tests.faults import Once
from tests.hostapp.models import Handled

pytestmark = pytest.mark.django_db

PERMISSIONS = ("view", "run", "cancel", "copy")


def run(*words: str) -> str:
    out = StringIO()
    call_command("ems_tasks", *words, stdout=out)
    return out.getvalue()


def shown(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


@pytest.fixture
def operator(as_role: As) -> Any:  # noqa: F811 - the fixture
    names = [f"ems_tasks.{verb}_taskrun" for verb in PERMISSIONS]
    schedules = ["ems_tasks.view_taskschedule", "ems_tasks.pause_taskschedule"]
    schedules.append("ems_tasks.run_taskschedule")
    return as_role("staff", *names, *schedules, "ems.view_body")


def failed(work: Any) -> TaskRun:
    work.fail_until.enqueue(4)
    for _attempt in range(3):
        drain()
        advance(timedelta(seconds=5))
    return TaskRun.objects.get()


def test_a_failed_task_runs_again_once(work: Any, operator: Any) -> None:
    row = failed(work)
    done: list[Any] = []
    signals.act_done.connect(lambda **about: done.append(about["act"]), weak=False, dispatch_uid=1)
    Page(operator).carry_out(RunTaskAgain, row, "")
    Page(operator).carry_out(RunTaskAgain, row, "")
    signals.act_done.disconnect(dispatch_uid=1)
    assert LogEntry.objects.count() == 1
    drain()
    row.refresh_from_db()
    assert (row.status, row.attempts) == ("SUCCESSFUL", 4)


def test_the_command_runs_a_failed_task_again(work: Any) -> None:
    row = failed(work)
    assert "it runs again" in run("run", row.result_id)
    assert "nothing to do" in run("run", row.result_id)


def test_a_task_is_edited_and_run_once_for_each_preview(work: Any, operator: Any) -> None:
    row = failed(work)
    page = Page(operator)
    offer = page.preview(EditTask, row, {"arguments": '{"args": [1]}'})
    assert TaskRun.objects.count() == 1
    page.carry_out(EditTask, row, offer)
    with pytest.raises(Refused):
        page.carry_out(EditTask, row, offer)
    drain()
    first, second = TaskRun.objects.order_by("pk")
    assert (first.status, first.copies) == ("FAILED", 1)
    assert second.arguments == {"args": [1], "kwargs": {}}
    assert second.status == "SUCCESSFUL"


@pytest.mark.parametrize("wrong", ["x", "[]", '{"args": 1}', '{"kwargs": []}', '{"more": 1}'])
def test_arguments_that_cannot_be_read_are_refused(work: Any, wrong: str) -> None:
    row = failed(work)
    with pytest.raises(InvalidValue):
        EditTask(arguments=wrong).preview(row, "default")


def test_an_edit_that_was_done_meanwhile_is_stale(work: Any) -> None:
    row = failed(work)
    act = EditTask()
    before = act.preview(row, "default").shown
    act.run(row, "default", Consent("somebody"))
    with pytest.raises(PreviewStale):
        act.run(row, "default", Consent("somebody else", before))


def test_the_command_copies_a_task_with_other_arguments(work: Any) -> None:
    row = failed(work)
    told = shown("copy", row.result_id, "--arguments", '{"args": [1]}', "--yes")
    assert told["done"] is True
    drain()
    assert TaskRun.objects.get(result_id=told["result_id"]).status == "SUCCESSFUL"


def test_the_command_cancels_a_task_that_waits(work: Any) -> None:
    waits, again = work.note.enqueue("1"), work.fail_until.enqueue(3)
    assert shown("cancel", waits.id) == {"id": waits.id, "outcome": "cancelled"}
    drain()
    assert "it is cancelled" in run("cancel", again.id)
    with pytest.raises(CommandError, match="no task x"):
        run("cancel", "x")


def test_the_command_lists_and_shows(work: Any) -> None:
    row = failed(work)
    work.add.enqueue(1, 1)
    drain()
    assert [one["status"] for one in shown("list")] == ["SUCCESSFUL", "FAILED"]
    assert len(shown("list", "--status", "FAILED")) == 1
    assert shown("list", "--queue", "emails") == []
    assert len(shown("list", "--path", row.path)) == 1
    one = shown("show", row.result_id)
    assert (one["attempts"], len(one["errors"])) == (3, 3)
    assert "attempt 3" in run("show", row.result_id)
    with pytest.raises(CommandError):
        run("show", "x")


def test_the_command_deletes_old_rows(work: Any) -> None:
    row = failed(work)
    work.add.enqueue(1, 1)
    drain()
    TaskRun.objects.update(finished_at=UtcNow(-timedelta(days=3)))
    assert shown("prune", "--older-than", "4d", "--yes")["deleted"] == 0
    assert shown("prune", "--older-than", "2d", "--dry-run")["deleted"] == 2
    assert shown("prune", "--older-than", "2d", "--status", "FAILED", "--yes")["deleted"] == 1
    assert not TaskRun.objects.filter(pk=row.pk).exists()
    with pytest.raises(CommandError):
        run("prune", "--older-than", "2d")  # nobody to ask


def pruned(result: Any) -> Any:
    """Let the task run, and delete its row before its message."""
    drain()
    TaskRun.objects.update(finished_at=UtcNow(-timedelta(days=3)))
    assert shown("prune", "--older-than", "2d", "--yes")["deleted"] == 1
    assert Message.objects.exists()
    return result


def group() -> ConsumerGroup:
    return ConsumerGroup.objects.get(topic__name="tasks.default")


def test_a_task_whose_row_is_deleted_has_no_result_and_cannot_be_cancelled(work: Any) -> None:
    result = pruned(work.add.enqueue(1, 1))
    with pytest.raises(TaskResultDoesNotExist):
        work.add.get_result(result.id)
    backend: Any = task_backends["default"]
    assert backend.cancel(result.id) == "unknown"
    with pytest.raises(CommandError, match="no task"):
        run("cancel", result.id)
    assert not TaskRun.objects.exists()


def claim() -> None:
    Delivery.objects.update(state=State.START, progress=F("first_offset"), settled=0)


def replay() -> None:
    start(group(), spans(group(), Target.parse("0"), Target.parse("1"), "default"), "default")


COMES_AGAIN: dict[str, Callable[[], Any]] = {
    "claimed": claim,
    "redriven": lambda: redrive(DeadMessage.objects.get()),
    "replayed": replay,
    "reset": lambda: Cursor.objects.update(next_offset=0),
    "forgotten": lambda: Cursor.objects.all().delete(),
}


@pytest.mark.parametrize("act", COMES_AGAIN.values(), ids=COMES_AGAIN)
def test_a_task_that_comes_again_waits_although_its_row_is_deleted(
    work: Any, act: Callable[[], Any]
) -> None:
    result = pruned(work.fail.enqueue("no"))
    act()
    assert work.fail.get_result(result.id).status == "READY"
    backend: Any = task_backends["default"]
    assert backend.cancel(result.id) == "cancelled"
    assert work.fail.get_result(result.id).status == "FAILED"


def test_a_task_that_is_settled_in_an_open_claim_does_not_wait(work: Any) -> None:
    result = pruned(work.add.enqueue(1, 1))
    Delivery.objects.update(state=State.START, progress=F("first_offset"), settled=1)
    with pytest.raises(TaskResultDoesNotExist):
        work.add.get_result(result.id)


def test_a_task_that_a_replay_leaves_out_does_not_wait(work: Any) -> None:
    result = work.add.enqueue(1, 1)
    drain()
    other = work.add.enqueue(2, 2)
    drain()
    TaskRun.objects.all().delete()
    replay()
    assert work.add.get_result(result.id).status == "READY"
    with pytest.raises(TaskResultDoesNotExist):
        work.add.get_result(other.id)


def test_a_task_behind_others_waits(work: Any) -> None:
    pruned(work.add.enqueue(1, 1))
    result = work.add.enqueue(2, 2)
    sequence("default")
    assert work.add.get_result(result.id).status == "READY"


def test_a_task_that_ends_during_the_look_is_found(work: Any) -> None:
    result = work.add.enqueue(1, 1)

    def run_first(look: Callable[[], Any]) -> Any:
        drain()
        return look()

    with connection.execute_wrapper(Once("ems_msg", run_first)):
        assert work.add.get_result(result.id).status == "SUCCESSFUL"


def test_a_task_that_ends_before_it_is_cancelled_has_finished(work: Any) -> None:
    result = work.add.enqueue(1, 1)

    def run_first(look: Callable[[], Any]) -> Any:
        drain()
        return look()

    backend: Any = task_backends["default"]
    with connection.execute_wrapper(Once("ems_msg", run_first)):
        assert backend.cancel(result.id) == "finished"


def test_a_task_that_a_batch_waits_for_is_cancelled_where_it_was_skipped(work: Any) -> None:
    """Its row cannot have been deleted, so it has not run; and without one no batch ends."""
    backend: Any = task_backends["default"]
    drain()
    backend.enqueue_batch([(work.add, [1, 1], {})])
    sequence("default")
    skipped = Message.objects.get()
    Cursor.objects.update(next_offset=1)
    envelope = of_message(skipped.pk, "default")
    assert envelope is not None
    assert backend.cancel(envelope.result_id) == "cancelled"
    assert end_batches("default") == 1


def test_the_command_does_not_delete_a_task_that_runs_again(work: Any) -> None:
    """It was chosen because it had ended."""
    row = failed(work)
    TaskRun.objects.update(finished_at=UtcNow(-timedelta(days=3)))

    def redriven(execute: Any, statement: str, *about: Any) -> Any:
        if statement.startswith("DELETE"):
            TaskRun.objects.filter(pk=row.pk).update(status="RUNNING", finished_at=None)
        return execute(statement, *about)

    with connection.execute_wrapper(redriven):
        assert shown("prune", "--older-than", "2d", "--yes")["deleted"] == 0
    assert TaskRun.objects.get(pk=row.pk).status == "RUNNING"


def test_the_pages_show_a_task_and_hide_its_arguments(
    work: Any,
    operator: Any,
    as_role: As,  # noqa: F811 - the fixture
) -> None:
    row = failed(work)
    page = operator.get(reverse("admin:ems_tasks_taskrun_change", args=[row.pk])).text
    assert "attempt 3" in page
    assert "&quot;args&quot;" in page
    assert "Run again" in page
    listed = operator.get(reverse("admin:ems_tasks_taskrun_changelist"), {"status": "FAILED"})
    assert row.result_id in listed.text
    for text, found in ((row.path, 1), (row.result_id, 1), (str(row.message_id), 1), ("x", 0)):
        url = reverse("admin:ems_tasks_taskrun_changelist")
        assert operator.get(url, {"q": text}).text.count(row.result_id) >= found
    viewer = as_role("viewer", "ems_tasks.view_taskrun")
    page = viewer.get(reverse("admin:ems_tasks_taskrun_change", args=[row.pk])).text
    assert "&quot;args&quot;" not in page
    assert "Run again" not in page


def test_each_verb_needs_its_permission(
    work: Any,
    as_role: As,  # noqa: F811 - the fixture
) -> None:
    row = failed(work)
    viewer = as_role("viewer", "ems_tasks.view_taskrun")
    url = reverse("admin:ems_tasks_taskrun_changelist")
    posted = {"action": "run", "index": "0", "_selected_action": [str(row.pk)]}
    viewer.post(url, posted)
    assert DeadMessage.objects.waiting().count() == 1


def test_a_schedule_is_paused_and_goes_on(operator: Any) -> None:
    row = TaskSchedule.objects.create(name="digest", last_tick_at=UtcNow())
    for act, paused in ((PauseSchedule, True), (ResumeSchedule, False)):
        Page(operator).carry_out(act, row, "")
        row.refresh_from_db()
        assert row.paused is paused
    assert operator.get(reverse("admin:ems_tasks_taskschedule_changelist")).status_code == 200


def test_a_schedule_runs_now_once_for_each_preview(
    use_tasks: Callable[..., Any], operator: Any
) -> None:
    digest = {"task": "tests.tasks_.work.note", "every": "1h", "args": ["digest"]}
    use_tasks(OPTIONS={"schedules": {"digest": digest}})
    row = TaskSchedule.objects.create(name="digest", last_tick_at=UtcNow(), paused=True)
    page = Page(operator)
    offer = page.preview(RunSchedule, row, {})
    page.carry_out(RunSchedule, row, offer)
    with pytest.raises(Refused):
        page.carry_out(RunSchedule, row, offer)
    call_command("ems_task_schedules", "run", "digest", "--yes", stdout=StringIO())
    drain()
    assert [one.value for one in Handled.objects.all()] == ["digest", "digest"]
    lost = TaskSchedule.objects.create(name="lost", last_tick_at=UtcNow())
    assert not RunSchedule.is_offered(lost, "default")
    with pytest.raises(InvalidValue):
        RunSchedule().preview(lost, "default")


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


def test_the_checks_name_what_is_wrong(use_tasks: Callable[..., Any], settings: Any) -> None:
    lost = {"task": "tests.tasks_.work.lost", "every": 5}
    use_tasks(QUEUES=[], OPTIONS={"schedules": {"a": lost}})
    assert ids(of_backend(task_backends["default"])) == ["ems.E031", "ems.W030"]
    one = {"BACKEND": settings.TASKS["default"]["BACKEND"], "QUEUES": ["default"]}
    one["OPTIONS"] = {"schedules": {"a": lost}}
    settings.TASKS = {"default": one, "other": one}
    assert ids(check_names(None)) == ["ems.E032", "ems.E033"]
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "streams.contrib.tasks"
    ]
    assert ids(task_backends["default"].check()) == ["ems.E030"]


def test_the_checks_name_a_group_that_gets_every_task(work: Any) -> None:
    assert ids(check_groups(None, databases=["default"])) == []
    consumer("tasks.default", group="other", start="earliest")(print)
    drain()
    assert ids(check_groups(None, databases=["default"])) == ["ems.W031"]


def test_nothing_is_wrong_with_the_tests(work: Any) -> None:
    assert [one for one in ids(run_checks(databases=["default"])) if one[-3:-1] == "03"] == []
    assert not Handled.objects.exists()


@pytest.mark.parametrize(
    ("task", "state"),
    [("finishes_all_the_same", "Successful"), ("until_cancelled", "Cancelled")],
)
def test_what_was_told_to_stop_is_cancelled_unless_it_finished(
    work: Any, operator: Any, task: str, state: str
) -> None:
    getattr(work, task).enqueue()
    drain()
    page = operator.get(reverse("admin:ems_tasks_taskrun_changelist")).text
    assert re.findall(r"ems-state-\w+\">(\w+)<", page) == [state]

"""Defines what an operator may do with a task: run it again, cancel it, edit it and run that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.consume.outcome.dead_letter import redrive
from streams.contrib.tasks.cancelling import cancel_task
from streams.contrib.tasks.compat import TaskResultStatus, task_backends
from streams.contrib.tasks.envelope import imported
from streams.contrib.tasks.models import TaskRun, TaskSchedule
from streams.contrib.tasks.names import GROUP, topic_of
from streams.contrib.tasks.once import Once
from streams.contrib.tasks.schedules import Scheduled, schedule_of
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import InvalidMessage, InvalidValue
from streams.models import DeadMessage
from streams.operate.acts import offer
from streams.operate.acts.act import Act, Consent, Effects, Table, argument
from streams.rules.json_column import check_storable


@dataclass(frozen=True)
class TaskChanged(Effects):
    """Whether a task, or a schedule, is now in the state that was wanted."""

    changed: bool
    now: str

    def texts(self) -> list[str]:
        return [self.now] if self.changed else []


def letter_of(row: TaskRun, using: str) -> DeadMessage | None:
    """Return the dead letter that waits of a task that has failed. Index: ems_dead_place."""
    if row.offset is None or row.partition is None:
        return None
    letters = (
        DeadMessage.objects.using(using)
        .waiting()
        .filter(
            group__name=GROUP,
            topic__name=topic_of(row.queue),
            partition__number=row.partition,
            offset=row.offset,
            message_id=row.message_id,
        )
    )
    return letters.order_by("-pk").first()


@dataclass(frozen=True)
class RunTaskAgain(Act[TaskRun, TaskChanged]):
    """Another round of attempts at a task that has failed: its dead letter is redriven."""

    name = "run"
    permission = "ems_tasks.run_taskrun"
    label = gettext_lazy("Run again")
    text = gettext_lazy("A task that has failed runs again, with all its attempts.")
    previewed = False

    @classmethod
    def is_offered(cls, row: TaskRun, using: str) -> bool:
        return row.status == TaskResultStatus.FAILED and letter_of(row, using) is not None

    def run(self, row: TaskRun, using: str, consent: Consent) -> TaskChanged:
        letter = letter_of(row, using)
        return TaskChanged(letter is not None and redrive(letter), _("it runs again"))


@dataclass(frozen=True)
class CancelTask(Act[TaskRun, TaskChanged]):
    """The end of a task that waits; one that runs is told."""

    name = "cancel"
    permission = "ems_tasks.cancel_taskrun"
    label = gettext_lazy("Cancel")
    text = gettext_lazy("A task that waits does not run any more. One that runs may ask, and stop.")
    previewed = False

    @classmethod
    def is_offered(cls, row: TaskRun, using: str) -> bool:
        ready = row.status == TaskResultStatus.READY
        return ready or (row.status == TaskResultStatus.RUNNING and row.cancelled_at is None)

    def run(self, row: TaskRun, using: str, consent: Consent) -> TaskChanged:
        now = TaskRun.objects.using(using).get(pk=row.pk)
        if not self.is_offered(now, using):
            return TaskChanged(False, "")
        said = cancel_task(row.result_id, using)
        texts = {"cancelled": _("it is cancelled"), "running": _("it runs, and is told")}
        return TaskChanged(said in texts, texts.get(said, ""))


@dataclass(frozen=True)
class TaskCopied(Effects):
    """A task with edited arguments. ``copies`` is how many there were before it."""

    path: str
    arguments: dict[str, Any]
    copies: int
    result_id: str = ""

    def texts(self) -> list[str]:
        said = _("enqueued as %s") % self.result_id if self.result_id else _("it is enqueued anew")
        return [said]

    def table(self) -> Table:
        content = json.dumps(self.arguments, ensure_ascii=False)
        return Table((_("Task"), _("Arguments")), [(self.path, content)])

    @property
    def shown(self) -> Any:
        return [self.arguments, self.copies]


@dataclass(frozen=True)
class EditTask(Act[TaskRun, TaskCopied]):
    """A new task like this one, with other arguments or with the same."""

    name = "copy"
    permission = "ems_tasks.copy_taskrun"
    label = gettext_lazy("Edit and run")
    text = gettext_lazy("A new task is enqueued with these arguments; this one stays as it is.")
    has_form = True
    at_fault = {InvalidValue: "arguments", InvalidMessage: "arguments"}

    arguments: str | None = argument(
        gettext_lazy('the arguments as JSON: {"args": [1], "kwargs": {"two": 2}}; empty: the same'),
        default=None,
        metavar="JSON",
    )

    @classmethod
    def situation(cls, row: TaskRun, using: str) -> Table | None:
        content = json.dumps(row.arguments, ensure_ascii=False)
        return Table((_("Task"), _("Arguments")), [(row.path, content)])

    def preview(self, row: TaskRun, using: str) -> TaskCopied:
        """Raises InvalidValue and InvalidMessage."""
        now = TaskRun.objects.using(using).get(pk=row.pk)
        arguments = self._arguments(now)
        check_storable(arguments, "The arguments are")
        return TaskCopied(now.path, arguments, now.copies)

    def run(self, row: TaskRun, using: str, consent: Consent) -> TaskCopied:
        """Raises InvalidValue and InvalidMessage."""
        return retrying(self._run, using, row, using, Once(consent))

    def _run(self, row: TaskRun, using: str, once: Once) -> TaskCopied:
        backend: Any = task_backends[row.backend]
        task = imported(row.path).using(
            backend=row.backend, queue_name=row.queue, priority=row.priority
        )
        with own_transaction(using):
            rows = TaskRun.objects.using(using)
            now = rows.select_for_update().get(pk=row.pk)
            found = self.preview(now, using)
            args, kwargs = found.arguments["args"], found.arguments["kwargs"]
            key = f"copy:{row.result_id}:{once.mark}"
            return once(
                found,
                lambda: backend.enqueue_keyed(task, args, kwargs, key),
                lambda: rows.filter(pk=row.pk).update(copies=F("copies") + 1),
            )

    def _arguments(self, row: TaskRun) -> dict[str, Any]:
        if not self.arguments:
            return {"args": row.arguments["args"], "kwargs": row.arguments["kwargs"]}
        try:
            given = json.loads(self.arguments)
            args, kwargs = given.get("args", []), given.get("kwargs", {})
            if given.keys() - {"args", "kwargs"}:
                raise ValueError
        except (ValueError, AttributeError):
            raise InvalidValue(_('Give JSON such as {"args": [1], "kwargs": {}}.')) from None
        if not (isinstance(args, list) and isinstance(kwargs, dict)):
            raise InvalidValue(_("args must be a list, and kwargs an object."))
        return {"args": args, "kwargs": kwargs}


@dataclass(frozen=True)
class _TurnSchedule(Act[TaskSchedule, TaskChanged]):
    permission = "ems_tasks.pause_taskschedule"
    previewed = False

    def _turn(self, row: TaskSchedule, using: str, *, paused: bool) -> bool:
        """Turn it; return whether it was otherwise: asked first, since a reply may be lost."""
        rows = TaskSchedule.objects.using(using).filter(pk=row.pk, paused=not paused)
        changed = retrying(rows.exists, using)
        retrying(lambda: rows.update(paused=paused), using)
        return changed


@dataclass(frozen=True)
class PauseSchedule(_TurnSchedule):
    """No more ticks for now."""

    name = "pause"
    label = gettext_lazy("Pause")
    text = gettext_lazy("Nothing is enqueued by it until it goes on.")

    @classmethod
    def is_offered(cls, row: TaskSchedule, using: str) -> bool:
        return not row.paused

    def run(self, row: TaskSchedule, using: str, consent: Consent) -> TaskChanged:
        return TaskChanged(self._turn(row, using, paused=True), _("paused"))


@dataclass(frozen=True)
class ResumeSchedule(_TurnSchedule):
    """The end of such a pause."""

    name = "resume"
    label = gettext_lazy("Go on")
    text = gettext_lazy("Its next tick is enqueued again.")

    @classmethod
    def is_offered(cls, row: TaskSchedule, using: str) -> bool:
        return row.paused

    def run(self, row: TaskSchedule, using: str, consent: Consent) -> TaskChanged:
        return TaskChanged(self._turn(row, using, paused=False), _("goes on"))


@dataclass(frozen=True)
class ScheduleRun(Effects):
    """The task of a schedule, enqueued by hand. ``runs`` is how often that was done before."""

    path: str
    runs: int
    result_id: str = ""

    def texts(self) -> list[str]:
        said = _("enqueued as %s") % self.result_id if self.result_id else _("its task is enqueued")
        return [said]

    def table(self) -> Table:
        return Table((_("Task"), _("Runs by hand")), [(self.path, self.runs)])

    @property
    def shown(self) -> int:
        return self.runs


@dataclass(frozen=True)
class RunSchedule(Act[TaskSchedule, ScheduleRun]):
    """One more run of a schedule, besides its ticks."""

    name = "run"
    permission = "ems_tasks.run_taskschedule"
    label = gettext_lazy("Run now")
    text = gettext_lazy("Its task is enqueued at once, also while it is paused; its ticks go on.")

    @classmethod
    def is_offered(cls, row: TaskSchedule, using: str) -> bool:
        return schedule_of(row.name) is not None

    def preview(self, row: TaskSchedule, using: str) -> ScheduleRun:
        """Raises InvalidValue."""
        now = TaskSchedule.objects.using(using).get(pk=row.pk)
        return ScheduleRun(self._schedule(now).path, now.runs)

    def run(self, row: TaskSchedule, using: str, consent: Consent) -> ScheduleRun:
        """Raises InvalidValue."""
        return retrying(self._run, using, row, using, Once(consent))

    def _run(self, row: TaskSchedule, using: str, once: Once) -> ScheduleRun:
        with own_transaction(using):
            rows = TaskSchedule.objects.using(using).filter(pk=row.pk)
            rows.select_for_update().get()
            return once(
                self.preview(row, using),
                lambda: self._schedule(row).enqueue_now(once.mark),
                lambda: rows.update(runs=F("runs") + 1),
            )

    def _schedule(self, row: TaskSchedule) -> Scheduled:
        if (found := schedule_of(row.name)) is None:
            raise InvalidValue(_("The settings have no schedule %s.") % row.name)
        return found


OFFERED: Sequence[tuple[Any, Any]] = (
    (TaskRun, (RunTaskAgain, CancelTask, EditTask)),
    (TaskSchedule, (PauseSchedule, ResumeSchedule, RunSchedule)),
)


def register() -> None:
    for model, acts in OFFERED:
        offer(model, acts)

"""Runs one task: the handler of every queue.

Its start is written before it runs, and its end before the delivery is settled. So who is killed in
between leaves a row that says what the next attempt has to do: run the task, or only settle.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from django.db import transaction

from streams.api import ReceivedMessage
from streams.consume.outcome.failure import ProcessDied
from streams.contrib.tasks import erasing
from streams.contrib.tasks.compat import (
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from streams.contrib.tasks.context import EmsTaskContext
from streams.contrib.tasks.envelope import Envelope, NotATask, imported, shown
from streams.contrib.tasks.models.run import ENDED
from streams.contrib.tasks.record import Record, RowRefused, as_json
from streams.contrib.tasks.result import EmsTaskResult, renew, waiting
from streams.contrib.tasks.slots import HeldSlot, key_of, wait
from streams.contrib.tasks.task_options import UNTIL_FINISH, UNTIL_START, delay_of
from streams.contrib.tasks.unique import free
from streams.errors import LeaseLost, Postpone, Reject, Retry, describe
from streams.operate.erasure import ERASED
from streams.sharding import alias_of


class TaskFailed(Reject):
    """The end of a task without attempts left; its dead letter shows the error of the task."""

    shows_cause = True


class TaskCancelled(Exception):
    """The task was cancelled."""

    def __str__(self) -> str:
        return str(self.__doc__)


def run_task(message: ReceivedMessage) -> None:
    """Run the task of the message, or settle what an earlier attempt has ended."""
    try:
        envelope = Envelope.of(message.message_id, message.topic, message.headers, message.body)
    except NotATask as error:
        if ERASED not in message.headers:
            raise TaskFailed(str(error)) from error
        erasing.fail(alias_of(message.topic), message.topic, message.message_id)
        erased = erasing.TaskErased()
        raise TaskFailed(str(erased)) from erased
    _Attempt(Record(envelope, message, alias_of(message.topic))).make()


def timeout_of(message: ReceivedMessage) -> float | None:
    """Return after how many seconds the task of a message hangs; None leaves that to its queue."""
    try:
        given = getattr(imported(message.headers["task"]), "timeout", None)
    except Exception:  # noqa: BLE001 - its module may raise anything: then the attempt fails
        return None
    return given.total_seconds() if isinstance(given, timedelta) else given


class _Attempt:
    """One attempt at a task."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._envelope = record.envelope
        self._unknown: Exception | None = None
        self._backend: Any = None
        self._result: EmsTaskResult | None = None
        try:
            self._backend = task_backends[self._envelope.backend]
            self._result = waiting(self._envelope)
        except Exception as error:  # noqa: BLE001 - its module may raise anything
            self._unknown = error

    def make(self) -> None:
        slot = self._slot()
        if slot is None:
            self._make()
        elif self._takes(slot):
            try:
                self._make()
            finally:
                slot.free()

    def _slot(self) -> HeldSlot | None:
        """Return the slot that the task needs, if it has a limit."""
        result = self._result
        limit = getattr(result.task, "limit", None) if result else None
        if result is None or limit is None:
            return None
        try:
            key = key_of(result.task, result.args, result.kwargs)
        except Exception as error:  # noqa: BLE001 - limit_key may be a function of the project
            self._unknown = error
            return None
        return HeldSlot(self._record, key, limit, self._record.token)

    def _takes(self, slot: HeldSlot) -> bool:
        """Take a slot; return False if the task has ended, and only its delivery is to settle."""
        record = self._record
        known = record.find()
        if known and self._has_ended():
            self._free(UNTIL_FINISH)
            return False
        if slot.take():
            return True
        if known and record.is_first_of_round:
            record.begin_round()
        raise Postpone(wait(), "all slots of its limit are taken")

    def _make(self) -> None:
        record = self._record
        if not self._insert():
            if self._has_ended():
                self._free(UNTIL_FINISH)
                return
            if not record.is_first_of_round and self._is_spent(record.attempts):
                self._give_up()
            record.begin_again()
        self._free(UNTIL_START)
        self._tell_start()
        if self._unknown is not None:
            self._failed(self._unknown)
            return
        try:
            value = self._run()
        except KeyboardInterrupt:
            raise  # somebody ends the process: the task runs again, if it may
        except LeaseLost:
            raise
        except Postpone:
            record.postpone()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises
            self._failed(error)
        else:
            self._free(UNTIL_FINISH)
            self._tell_end(_return_value=value)

    def _insert(self) -> bool:
        """Record the first start; return False if the task has a row.

        If its values are refused it fails, with a row that has no arguments. If that is refused,
        too, RowRefused makes it a dead letter.
        """
        record = self._record
        try:
            return record.insert()
        except RowRefused as error:
            self._unknown = error
        record.envelope = replace(record.envelope, args=[], kwargs={}, metadata={})
        return record.insert()

    def _free(self, until: str) -> None:
        """Let a task like this be enqueued again, if it is unique until now."""
        if self._envelope.unique == until:
            free(self._envelope.message_id, self._record.using)

    def _has_ended(self) -> bool:
        """Tell whether there is only the delivery left to settle; raise if that is a failure."""
        record = self._record
        if record.status not in ENDED:
            return False
        if not record.was_cancelled_waiting and record.is_first_of_round:
            return False  # it was redriven or replayed
        if record.status == TaskResultStatus.FAILED and not record.cancelled:
            self._free(UNTIL_FINISH)
            raise TaskFailed(record.last_error)
        return True

    def _give_up(self) -> None:
        """End a task without attempts left, which has not ended.

        Its last attempt died, or failed when it had more of them: `max_attempts` was higher, or the
        task was there.
        """
        record = self._record
        record.token = record.found_token  # of that attempt
        before = TaskResultStatus(record.status)
        if before != TaskResultStatus.READY:
            self._fail(ProcessDied())
        if self._unknown is not None:
            self._fail(self._unknown, before=before)
        self._show_errors()
        self._end_failed(before)
        raise TaskFailed(record.last_error)

    def _run(self) -> Any:
        record, result = self._record, self._result
        assert result is not None  # noqa: S101 - or it would be unknown
        task = result.task
        atomic = self._option("atomic")
        with transaction.atomic(using=record.using) if atomic else nullcontext():
            arguments = result.args, result.kwargs
            try:
                if task.takes_context:
                    context = EmsTaskContext(task_result=result, record=record)
                    returned = task.call(context, *arguments[0], **arguments[1])
                else:
                    returned = task.call(*arguments[0], **arguments[1])
            except Postpone:
                record.check_metadata()  # it is written, as that of a task that has succeeded
                raise
            value = normalize_json(returned)
            record.check_metadata()
            record.end(TaskResultStatus.SUCCESSFUL, as_json(value))
        return value

    def _failed(self, error: BaseException) -> None:
        """Record that the attempt has failed, and raise what the group makes of it."""
        record = self._record
        record.restore_metadata()
        record.note(error)
        self._show_errors()
        if isinstance(error, TaskCancelled):  # it was wanted: nobody has to look after it
            self._end_failed()
            return
        if isinstance(error, Reject) or self._is_spent():
            self._fail(error, noted=True)
        try:
            again = self._again(error)
        except Exception as wrong:  # noqa: BLE001 - backoff may be a function of the project
            self._fail(wrong)
        if again is None:
            self._fail(error, noted=True)
        record.end(TaskResultStatus.READY)
        raise again from error

    def _again(self, error: BaseException) -> Retry | None:
        """Return what the group is told of a further attempt; None if there is none."""
        delay = self._delay(error)
        if delay is None:
            return None
        return Retry(describe(error), delay=None if isinstance(delay, str) else delay)

    def _delay(self, error: BaseException) -> timedelta | str | None:
        if isinstance(error, Retry) and error.delay is not None:
            return error.delay
        return delay_of(self._option("backoff"), error, self._result)

    def _fail(
        self,
        error: BaseException,
        *,
        noted: bool = False,
        before: TaskResultStatus = TaskResultStatus.RUNNING,
    ) -> NoReturn:
        if not noted:
            self._record.note(error)
            self._show_errors()
        self._end_failed(before)
        raise TaskFailed(describe(error)) from error

    def _end_failed(self, before: TaskResultStatus = TaskResultStatus.RUNNING) -> None:
        self._record.end(TaskResultStatus.FAILED, before=before)
        self._free(UNTIL_FINISH)
        self._tell_end()

    def _is_spent(self, attempts: int | None = None) -> bool:
        record = self._record
        made = (record.attempts if attempts is None else attempts) - record.attempts_before
        return bool(made >= self._option("max_attempts"))

    def _option(self, name: str) -> Any:
        """Return an option of the task, or of its backend."""
        own = getattr(self._result.task, name, None) if self._result else None
        if own is not None and own is not ...:
            return own
        if name == "backoff" and self._result and own is None and hasattr(self._result.task, name):
            return None
        return getattr(self._backend.known, name) if self._backend else _WITHOUT_BACKEND[name]

    def _tell_start(self) -> None:
        record = self._record
        if self._result is None:
            return
        renew(
            self._result,
            status=TaskResultStatus.RUNNING,
            started_at=shown(record.started_at),
            last_attempted_at=shown(record.attempted_at),
            worker_ids=list(record.worker_ids),
            metadata=record.metadata,
        )
        self._show_errors()
        task_started.send_robust(type(self._backend), task_result=self._result)

    def _show_errors(self) -> None:
        if self._result is not None:
            renew(self._result, errors=[TaskError(**one) for one in self._record.errors])

    def _tell_end(self, **values: Any) -> None:
        record = self._record
        if self._result is None:
            return
        renew(
            self._result,
            status=TaskResultStatus(record.status),
            finished_at=shown(record.finished_at),
            metadata=record.metadata,
            **values,
        )
        task_finished.send_robust(type(self._backend), task_result=self._result)


# Of a task whose backend is not in TASKS any more.
_WITHOUT_BACKEND = {"max_attempts": 1, "backoff": None, "atomic": False}

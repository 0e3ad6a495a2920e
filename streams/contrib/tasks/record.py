"""Writes the row of a task that runs: its start, its end, and what it says of itself meanwhile."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from traceback import format_exception
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DataError, Error, IntegrityError, connections
from django.utils import timezone

from streams.api import ReceivedMessage
from streams.conf import MAX_BATCH, name_prefix
from streams.contrib.tasks import sql
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.envelope import Envelope
from streams.contrib.tasks.models.run import ENDED
from streams.database.clock import instant
from streams.database.retrying import error_number, retrying
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import latest_rows
from streams.deliver.reading import delivery_of
from streams.errors import LeaseLost, Reject, storable, text_of
from streams.models import Delivery
from streams.models.dead import cut
from streams.models.fields import to_db
from streams.produce.identity import producer_name
from streams.rules.json_column import check_storable

# The newest errors of a task that are kept.
ERRORS = 20

# A token has the id of a delivery, of 40 bits, and a random rest.
RANDOM_BITS = 22
UNKNOWN = 2**40

# What a server says of a row that it does not take.
REFUSALS = (DataError, IntegrityError)
# MySQL says it of text that is no JSON for it, of a key that is too long, and of too many levels.
NOT_JSON = {3140, 3151, 3157}
# The unique key has a row already.
DUPLICATE = 1062

_encoder = DjangoJSONEncoder()  # it has no state, and to make one takes longer than a small value
# Raises for what no server stores: NaN, infinity and, once it is encoded, a lone surrogate.
_strict = DjangoJSONEncoder(allow_nan=False, ensure_ascii=False)


class RowRefused(Reject):
    """The database does not take the row of a task; the text is its own."""


@dataclass
class Record:
    """The row of a task, as the attempt that runs has written it."""

    envelope: Envelope
    message: ReceivedMessage
    using: str
    token: int = 0  # of this attempt: see new_token()
    pk: int = 0
    status: str = TaskResultStatus.RUNNING.value
    attempts: int = 1
    attempts_before: int = 0
    worker_ids: list[str] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    attempted_at: datetime | None = None
    finished_at: datetime | None = None
    cancelled: bool = False
    found_token: int = 0  # of the attempt before this one
    _written: str = field(default="{}", init=False)  # the metadata that the row has

    def __post_init__(self) -> None:
        self.token = new_token(delivery_of(self.message))

    @cached_property
    def is_first_of_round(self) -> bool:
        """Tell whether the group gives the task out anew: at first, by a redrive or a replay.

        Attempts of this round may have died before the task began. Then the row has the end of an
        earlier round.
        """
        return self.message.attempt == 1 or (self.status in ENDED and self._is_of_earlier_round())

    def _is_of_earlier_round(self) -> bool:
        """Tell whether the group has begun a round after the attempt that has written the row.

        A round begins with an attempt 1. Index: ems_log_place (group, partition, first_offset).
        """
        topic, at = self.message.topic, self.message.offset
        began = Delivery.objects.using(self.using).filter(
            group__topic__name=topic,
            group__name=self.message.group,
            partition__topic__name=topic,
            partition__number=self.message.partition,
            first_offset__range=(at - MAX_BATCH + 1, at),
            last_offset__gte=at,
            attempt=1,
            pk__gt=self.found_token >> RANDOM_BITS,
        )
        return retrying(began.exists, self.using)

    def insert(self) -> bool:
        """Record the first start; return False if the task has a row, which is read then.

        Raises RowRefused.
        """
        try:
            retrying(self._insert, self.using)
        except Error as error:
            if not _is_there(error):
                if isinstance(error, REFUSALS) or error_number(error) in NOT_JSON:
                    raise RowRefused(text_of(error)) from error
                raise
        else:
            return True
        if not self.find():
            raise LeaseLost  # somebody has deleted it since
        # A lost reply: the first try has inserted it.
        return self.found_token == self.token

    def _insert(self) -> None:
        one, now = self.envelope, timezone.now().astimezone(UTC)
        parameters: list[Any] = [
            one.result_id,
            one.message_id,
            self.message.partition,
            self.message.offset,
            one.backend,
            name_prefix() + one.queue,
            one.path,
            one.priority,
            one.batch,
            as_json(one.arguments),
            to_db(one.run_after) if one.run_after else None,
            to_db(one.enqueued_at),
            to_db(now),
            to_db(now),
            self.token,
            as_json([producer_name()]),
            (written := as_json(one.metadata)),
        ]
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql.INSERT_RUN, parameters)
            self.pk = cursor.lastrowid
        self.worker_ids, self.metadata = [producer_name()], dict(one.metadata)
        self._written = written
        self.started_at = self.attempted_at = now

    def find(self) -> bool:
        """Read the row as earlier attempts have left it; return False if there is none."""
        rows = retrying(fetch, self.using, self.using, sql.READ_RUN, [self.envelope.result_id])
        if not rows:
            return False
        (
            self.pk,
            self.status,
            self.found_token,
            self.attempts,
            self.attempts_before,
            workers,
            errors,
            self._written,
            started,
            cancelled,
        ) = rows[0]
        self.worker_ids, self.errors = json.loads(workers), json.loads(errors)
        self.metadata = json.loads(self._written)
        self.started_at = instant(started) if started else None
        self.cancelled = cancelled is not None
        return True

    def begin_round(self) -> None:
        """Let a task that was redriven or replayed wait, with all its attempts again."""
        values = [self.pk, self.found_token, self.status]
        retrying(execute, self.using, self.using, sql.BEGIN_ROUND, values)

    def begin_again(self) -> None:
        """Record the start of a further attempt.

        Raises LeaseLost if another one has begun, or the task was cancelled: that is seen next.
        """
        now = timezone.now().astimezone(UTC)
        anew = self.is_first_of_round and self.status != TaskResultStatus.READY
        if anew:
            self.attempts_before, self.started_at, self.cancelled = self.attempts, None, False
        self.worker_ids.append(producer_name())
        self.attempts += 1
        self.attempted_at = now
        self.started_at = self.started_at or now
        values = [
            self.token,
            self.attempts,
            self.attempts_before,
            as_json(self.worker_ids),
            to_db(self.started_at),
            to_db(now),
            anew,
            self.message.partition,
            self.message.offset,
            self.pk,
            self.found_token,
            self.status,
        ]
        if not retrying(execute, self.using, self.using, sql.START_RUN, values):
            self._make_sure(TaskResultStatus.RUNNING)
        self.status = TaskResultStatus.RUNNING.value

    def end(
        self,
        status: TaskResultStatus,
        value: Any = None,
        *,
        before: TaskResultStatus = TaskResultStatus.RUNNING,
    ) -> None:
        """Record the end of this attempt, whose task is in the status ``before``.

        Raises LeaseLost if another one has begun since.
        """
        ends = status != TaskResultStatus.READY
        self.finished_at = timezone.now().astimezone(UTC) if ends else None
        values = [
            status.value,
            to_db(self.finished_at) if self.finished_at else None,
            as_json(self.errors[-ERRORS:]),
            value if status == TaskResultStatus.SUCCESSFUL else None,
            as_json(self.metadata),
            self.attempts,
            as_json(self.worker_ids),
            self.pk,
            self.token,
            before.value,
        ]
        with latest_rows(self.using):
            if not retrying(execute, self.using, self.using, sql.END_RUN, values):
                self._make_sure(status)
        self.status = status.value

    def _make_sure(self, status: TaskResultStatus) -> None:
        """Raise LeaseLost unless an earlier try of this attempt, whose reply was lost, did it."""
        parameters = [self.pk, self.token, status.value]
        if not retrying(fetch, self.using, self.using, sql.ENDED_RUN, parameters):
            raise LeaseLost

    def postpone(self) -> None:
        """Record that the task runs later, with this attempt unspent."""
        self.attempts -= 1
        self.worker_ids.pop()
        self.end(TaskResultStatus.READY)

    def note(self, error: BaseException) -> None:
        """Add what an attempt has raised."""
        kind = type(error)
        trace = cut(storable("".join(format_exception(error))))
        path = f"{kind.__module__}.{kind.__qualname__}"
        self.errors.append({"exception_class_path": path, "traceback": trace})

    @property
    def was_cancelled_waiting(self) -> bool:
        """Tell whether the task was cancelled while it waited: then it does not run any more.

        One that ran, was told so and has stopped is replayed as any other.
        """
        return self.cancelled and self.attempts == self.attempts_before

    @property
    def last_error(self) -> str:
        """Return the class of what the last attempt has raised."""
        return self.errors[-1]["exception_class_path"] if self.errors else ""

    def save_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = dict(metadata)
        self.check_metadata()
        written = as_json(self.metadata)
        values = [written, self.pk, self.token]
        retrying(execute, self.using, self.using, sql.SAVE_METADATA, values)
        self._written = written

    def check_metadata(self) -> None:
        """Raise an error that says why not each server stores the metadata, if that is so."""
        check_storable(self.metadata, "The metadata is")
        _strict.encode(self.metadata).encode()

    def restore_metadata(self) -> None:
        """Go back to the metadata last written, unless that of the task can be stored.

        The end of a failed attempt is written with it: if that raised, the group would give the
        task out again, whatever its attempts, and its own error would be nowhere.
        """
        try:
            self.check_metadata()
        except Exception:  # noqa: BLE001 - an object of the task may raise anything
            self.metadata = json.loads(self._written)

    def is_cancelled(self) -> bool:
        """Ask whether somebody has cancelled the task since it began."""
        rows = retrying(fetch, self.using, self.using, sql.IS_CANCELLED, [self.pk])
        return bool(rows and rows[0][0])


def new_token(delivery: int) -> int:
    """Return a token that nobody else has, and that says of which delivery an attempt is.

    If that is unknown, none is later: then what has ended is never taken for an earlier round.
    """
    return (delivery or UNKNOWN) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)


def _is_there(error: Error) -> bool:
    """Tell whether the unique key has the row already."""
    return error_number(error) == DUPLICATE or "UNIQUE constraint failed" in str(error)


def as_json(value: Any) -> str:
    return _encoder.encode(value)

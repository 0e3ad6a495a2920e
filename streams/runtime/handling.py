"""From a claimed delivery to its outcome: read, call, settle. Shared by workers and testing."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections, transaction

from streams import sql
from streams.api import ReceivedMessage
from streams.consume.outcome import backoff
from streams.consume.outcome.failure import AttemptsExhausted, BodyUnread, Failure
from streams.consume.outcome.settle import release, settle
from streams.database.retrying import connection_lost, retrying
from streams.errors import LeaseLost, describe
from streams.models import Delivery, Kind, Partition, RetryMessage
from streams.registry import Registration
from streams.subscriptions import Limits
from streams.transactions import own_transaction

logger = logging.getLogger("streams.handling")

# A crash repeats the handler calls of at most this many seconds (and the one that was running).
CHECKPOINT_SECONDS = 1.0

TAG = 3  # the column of sql.BODIES


@dataclass
class Outcome:
    """What became of the messages of one delivery."""

    done: int = 0
    failed: int = 0  # of these, `dead` have become dead letters
    dead: int = 0
    missing: int = 0
    passed: int = 0  # without a tag that the group wants
    released: int = 0
    errors: list[BaseException] = field(default_factory=list)


class Handling:
    """One delivery in the hands of one thread.

    ``may_go_on`` is asked before each handler call; when it says no, what has not been handed
    over is released with its attempt unspent.
    """

    def __init__(
        self,
        delivery: Delivery,
        registration: Registration,
        limits: Limits,
        *,
        retry: RetryMessage | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.delivery = delivery
        self.registration = registration
        self.limits = limits
        self.retry = retry
        self.lost = False
        self.outcome = Outcome()
        self._missing: set[int] = set()
        self._unread: set[int] = set()
        self._passed: set[int] = set()
        self._may_go_on = may_go_on
        self._using = delivery.using
        self._timeout = limits.consume_timeout.total_seconds()
        self._call_started: float | None = None
        self._extended = time.monotonic()
        self._settled = time.monotonic()
        self._ran_since = time.monotonic()

    # -- what the heartbeat asks, from another thread --

    def time_left(self) -> timedelta:
        """Until the running call, or the next one, is overdue; negative when it is."""
        started = self._call_started
        elapsed = 0.0 if started is None else time.monotonic() - started
        return timedelta(seconds=self._timeout - elapsed)

    # -- what the worker does --

    def run(self) -> Outcome:
        """Read, call the handler, settle. Raises LeaseLost."""
        if backoff.exhausted(self.delivery.attempt - 1, self.limits.max_retries):
            # max_retries was lowered while it waited.
            self.delivery.attempt -= 1
            spent = AttemptsExhausted(self.retry.last_error if self.retry else "")
            self._settle(
                self.delivery.last_offset + 1, [Failure(self.delivery.first_offset, spent)]
            )
            return self.outcome
        messages = self._read()
        if self.registration.batch is None:
            self._run_one_by_one(messages)
        elif messages:
            self._run_batch(messages)
        if self.delivery.progress <= self.delivery.last_offset and not self.outcome.released:
            # Offsets after the last body, or all of them: gone.
            self._settle(self.delivery.last_offset + 1, [])
        return self.outcome

    @property
    def _ordered(self) -> bool:
        return self.delivery.group.ordered

    def _run_one_by_one(self, messages: Sequence[ReceivedMessage]) -> None:
        failures: list[Failure] = []
        position = self.delivery.progress
        for message in messages:
            if not self._begin():
                if position > self.delivery.progress:
                    self._settle(position, failures)
                self._release()
                return
            after = message.offset + 1
            if self.registration.atomic:
                self._call_atomically((message,), after)
            else:
                error = self._call(message)
                if error is not None:
                    failures.append(Failure(message.offset, error))
                checkpoint = time.monotonic() - self._settled > CHECKPOINT_SECONDS
                ends = after > self.delivery.last_offset or (failures and self._ordered)
                if checkpoint or ends:
                    self._settle(after, failures)
                    failures = []
            if self.delivery.progress > self.delivery.last_offset:
                return
            position = after
        if position > self.delivery.progress:
            self._settle(position, failures)

    def _run_batch(self, messages: Sequence[ReceivedMessage]) -> None:
        if not self._begin():
            self._release()
            return
        after = self.delivery.last_offset + 1
        if self.registration.atomic:
            self._call_atomically(messages, after)
            return
        try:
            failures = self._call_batch(messages)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises
            failures = [Failure(message.offset, error) for message in messages]
        self._settle(after, failures)

    def _call_atomically(self, messages: Sequence[ReceivedMessage], after: int) -> None:
        """The handler and its settlement in one transaction; a failure rolls both back."""
        delivery = self.delivery
        before = delivery.progress, delivery.last_offset, delivery.failed, delivery.missing
        counted = replace(self.outcome, errors=list(self.outcome.errors))
        try:
            with transaction.atomic(using=self._using):
                failures: list[Failure] = []
                if self.registration.batch is None:
                    self._timed(self.registration.handler, messages[0])
                else:
                    failures = self._call_batch(messages)
                self._settle(after, failures)
        except (LeaseLost, KeyboardInterrupt):
            raise
        except BaseException as error:
            if connection_lost(error):
                connections[self._using].close()
            # In an ordered group it may have ended at a failed message, before ``after``.
            written = delivery.progress
            if written > before[0] and self._was_committed(written):
                # The reply to the commit was lost, or a callback after it has failed.
                logger.warning("%s raised after its commit", self.registration.name, exc_info=error)
                return
            delivery.progress, delivery.last_offset, delivery.failed, delivery.missing = before
            self.outcome = counted
            self._settle(after, [Failure(message.offset, error) for message in messages])

    def _was_committed(self, progress: int) -> bool:
        """Whether the transaction that moves progress so far was committed, whatever was raised."""
        if connections[self._using].in_atomic_block:
            return False

        def look() -> bool:
            with own_transaction(self._using):
                # The transaction in doubt holds this row's lock to its end.
                row = Delivery.objects.using(self._using).select_for_update()
                token = self.delivery.token
                return row.filter(pk=self.delivery.pk, token=token, progress=progress).exists()

        return retrying(look, self._using)

    def _call(self, message: ReceivedMessage) -> BaseException | None:
        try:
            self._timed(self.registration.handler, message)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises
            return error
        return None

    def _call_batch(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
        returned = self._timed(self.registration.handler, messages)
        if returned is None:
            return []
        valid = isinstance(returned, Mapping) and set(returned) <= set(messages)
        if not valid or not all(isinstance(e, BaseException) for e in returned.values()):
            raise TypeError(
                f"{self.registration.name} must return None or {{message: exception}}, "
                f"not {returned!r:.200}"
            )
        return [Failure(message.offset, error) for message, error in returned.items()]

    def _timed(self, handler: Callable[[Any], Any], argument: Any) -> Any:
        self._call_started = time.monotonic()
        try:
            returned = handler(argument)
        finally:
            self._call_started = None
            left_open = self._left_open()
            if left_open:  # the outcome must not be part of it
                connections[self._using].close()
        if left_open:
            raise RuntimeError("the handler left a transaction open: it was rolled back")
        if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
            returned.close()
            raise TypeError(f"{self.registration.name} only made {returned!r}: nothing has run")
        return returned

    def _left_open(self) -> bool:
        connection = connections[self._using]
        if connection.in_atomic_block:
            if not self.registration.atomic:
                # It is a TestCase's. In production the handler is in no transaction, so a
                # statement that fails breaks none.
                connection.set_rollback(False)
            return False
        if connection.connection is None:
            return False
        return bool(connection.settings_dict["AUTOCOMMIT"] and not connection.autocommit)

    def _begin(self) -> bool:
        """Whether the next call may start now, with the lease long enough for it."""
        if self.lost or not self._may_go_on():
            return False
        now = time.monotonic()
        if self.delivery.kind == Kind.RETRY or self.delivery.attempt > 1:
            # Noted before the call: a retry that was never started keeps its attempt.
            self.delivery.start(self.limits.consume_timeout)
            self._extended = now
        elif now - self._extended > self._timeout / 2:
            timeout = self.limits.consume_timeout
            if not retrying(lambda: self.delivery.extend(timeout), self._using):
                raise LeaseLost
            self._extended = now
        return True

    def _settle(self, progress: int, failures: Sequence[Failure]) -> None:
        span = range(self.delivery.progress, progress)
        unread = [Failure(offset, BodyUnread()) for offset in self._unread.intersection(span)]
        if self._ordered and (failures or unread):
            # The first that failed ends it: what comes after waits for that one.
            first = min([*unread, *failures], key=lambda failure: failure.offset)
            progress = first.offset + 1
            span = range(self.delivery.progress, progress)
            failures = [failure for failure in failures if failure is first]
            unread = [failure for failure in unread if failure is first]
        missing = len(self._missing.intersection(span))
        passed = len(self._passed.intersection(span))
        settle(
            self.delivery,
            progress,
            [*failures, *unread],
            max_retries=self.limits.max_retries,
            missing=missing,
            passed=passed,
            running=timedelta(seconds=time.monotonic() - self._ran_since),
        )
        self._settled = time.monotonic()
        self.outcome.missing += missing
        self.outcome.passed += passed
        self.outcome.failed += len(failures)
        self.outcome.done += len(span) - missing - passed - len(failures) - len(unread)
        for failure in failures:
            self.outcome.dead += failure.is_final(self.delivery.attempt, self.limits.max_retries)
            self.outcome.errors.append(failure.error)
            logger.warning(
                "%s failed on %s/%d@%d, attempt %d: %s",
                self.registration.name,
                self.registration.topic,
                self.delivery.partition.number,
                failure.offset,
                self.delivery.attempt,
                describe(failure.error),
                exc_info=failure.error,
            )

    def _release(self) -> None:
        self.outcome.released = self.delivery.last_offset + 1 - self.delivery.progress
        release(self.delivery)

    # -- bodies --

    def _read(self) -> list[ReceivedMessage]:
        """The messages of the delivery whose bodies can be read."""
        rows = retrying(lambda: self._fetch(sql.BODIES), self._using)
        claimed = self.delivery.last_offset + 1 - self.delivery.first_offset
        if len(rows) < claimed:
            rows = retrying(self._fetch_on_primary, self._using)
        if not rows and self.retry and self.retry.dead_letter_id:
            rows = sql.fetch(self._using, sql.BODY_OF_DEAD, [self.retry.dead_letter_id])
        if absent := set(self.delivery.offsets) - {row[0] for row in rows}:
            self._note_absent(absent)
            if self._ordered and self._unread:  # what comes after the first of them waits for it
                rows = [row for row in rows if row[0] < min(self._unread)]
        if tags := self.registration.tags:
            self._passed = {row[0] for row in rows if row[TAG] not in tags}
            rows = [row for row in rows if row[TAG] in tags]
        return [self._received(row) for row in rows]

    def _note_absent(self, absent: set[int]) -> None:
        """What was purged is missing. Anything else is read once more, as a retry, before it is.

        The primary may be another server after a failover, and not have caught up yet.
        """
        partitions = Partition.objects.using(self._using).filter(pk=self.delivery.partition_id)
        floor = partitions.values_list("first_offset", flat=True).get()
        # Not any retry: one that failed before may now be read for the first time from there.
        again = self._was_unread()
        self._missing = {offset for offset in absent if offset < floor or again}
        self._unread = absent - self._missing
        if self._unread or again:
            logger.error("The bodies of %d messages of %s are gone", len(absent), self.delivery)

    def _was_unread(self) -> bool:
        unread = describe(BodyUnread())
        if self.retry or not self._ordered:
            return bool(self.retry and self.retry.last_error == unread)
        # Or the message before it was missing, too: one wait is enough for all of a gap.
        place = self.delivery.group_id, self.delivery.partition_id
        first = self.delivery.first_offset
        deliveries = Delivery.objects.using(self._using).filter(pk__lt=self.delivery.pk)
        before = deliveries.covering(*place, first).order_by("-pk").first()
        gap = deliveries.covering(*place, first - 1).filter(missing__gt=0)
        return bool(before and before.error == unread) or gap.exists()

    def _fetch(self, statement: Mapping[str, str]) -> list[Any]:
        vendor = connections[self._using].vendor
        bounds = (self.delivery.first_offset, self.delivery.last_offset + 1)
        return sql.fetch(self._using, statement[vendor], [self.delivery.partition_id, *bounds])

    def _fetch_on_primary(self) -> list[Any]:
        with own_transaction(self._using):
            return self._fetch(sql.BODIES_ON_PRIMARY)

    def _received(self, row: Sequence[Any]) -> ReceivedMessage:
        offset, id_, key, tag, headers, size, producer, created_at, sequenced_at, kind, body = row
        return ReceivedMessage(
            message_id=id_,
            topic=self.registration.topic,
            group=self.registration.group,
            partition=self.delivery.partition.number,
            offset=offset,
            attempt=self.delivery.attempt,
            key=key,
            tag=tag,
            headers=json.loads(headers) if headers else {},
            size=size,
            producer=producer,
            created_at=_instant(created_at),
            sequenced_at=_instant(sequenced_at) if sequenced_at else None,
            body_type=kind,
            raw_body=bytes(body),
        )


def _instant(value: Any) -> datetime:
    if isinstance(value, str):  # SQLite
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC)  # type: ignore[no-any-return]

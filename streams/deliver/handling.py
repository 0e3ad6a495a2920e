"""Handles a claimed delivery: reads, calls, settles. Workers and streams.testing share it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import OperationalError, connections, transaction

from streams.api import ReceivedMessage
from streams.consume.calling import Calls
from streams.consume.limits import Limits
from streams.consume.outcome import backoff, notices
from streams.consume.outcome.failure import AttemptsExhausted, BodyUnread, Failure
from streams.consume.outcome.lines import Lines
from streams.consume.outcome.settle import Settlement, release, settle
from streams.consume.registry import Registration
from streams.database.retrying import (
    NO_SUCH_SAVEPOINT,
    connection_lost,
    error_number,
    retrying,
)
from streams.database.transactions import latest_rows, own_transaction
from streams.deliver.pace import LONG_SECONDS
from streams.deliver.reading import Reading
from streams.errors import LeaseLost, TransactionEnded
from streams.logs import event
from streams.models import Delivery, Kind, RetryMessage

logger = logging.getLogger("streams.handling")


@dataclass
class Outcome:
    """Counts the outcomes of the messages of one delivery."""

    done: int = 0
    failed: int = 0  # of these, `dead` have become dead letters
    dead: int = 0
    missing: int = 0
    passed: int = 0  # without a tag that the group wants
    released: int = 0
    errors: list[BaseException] = field(default_factory=list)


class Handling:
    """Handles one delivery of a cluster group in one thread, and settles it in the tables.

    ``may_go_on`` is called before each handler call. When it returns False, the messages that no
    call has been given are released with their attempt unspent. Each call, with its settlement, is
    made inside the context that ``beside`` makes; to enter it may wait for other calls.
    """

    def __init__(
        self,
        delivery: Delivery,
        registration: Registration,
        limits: Limits,
        *,
        retry: RetryMessage | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.delivery = delivery
        self.registration = registration
        self.limits = limits
        self.retry = retry
        self.lost = False  # set by the heartbeat, from another thread
        self.outcome = Outcome()
        self._may_go_on = may_go_on
        self._beside = beside
        self._call = ExitStack()
        self._waiting = False
        self._using = delivery.using
        self._reading = Reading(delivery, registration, retry)
        self._size = 1 if registration.batch is None else limits.batch
        self._lines = Lines.wanted()
        self._calls = Calls(
            registration,
            delivery,
            self,
            timeout=limits.consume_timeout,
            using=delivery.using,
            lines=self._lines,
        )
        self._extended = self._ran_since = time.monotonic()
        self._began = False  # whether a call has begun
        self._atomic = False  # whether a transaction of the handler is open
        self._told: list[Callable[[], None]] = []

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs, or the next call waits for its turn."""
        return self._calls.running or self._waiting

    def time_left(self) -> timedelta:
        """Return the time until the running or next call is overdue; negative once it is."""
        return self._calls.time_left()

    def renew(self, left: timedelta) -> None:
        """Extend the lease of the delivery by ``left``, or note that it is lost."""
        # Once lost, always lost: until the sweep has run, the row looks as if it were still held.
        if not self.delivery.extend_unless_locked(left):
            self.lost = True

    def run(self) -> Outcome:
        """Read the messages, call the handler and settle; return the outcome. Raises LeaseLost."""
        if backoff.exhausted(self.delivery.attempt - 1, self.limits.max_retries):
            # max_retries was lowered while the message waited.
            self.delivery.attempt -= 1
            spent = AttemptsExhausted(self.retry.last_error if self.retry else "")
            failure = Failure(self.delivery.first_offset, spent)
            self.settle(self.delivery.last_offset + 1, [failure])
            return self.outcome
        with self._call:
            self._calls.run(self._reading.calls(self._size))
        return self.outcome

    # -- what the calls use: see Settler --

    @property
    def ordered(self) -> bool:
        return self.delivery.group.ordered

    def may_begin(self) -> bool:
        """Tell whether the next call may start now, and make the lease long enough for it."""
        self._call.close()  # the call before this one
        if self._gives_way():
            return False
        if not self._stopped():
            self._waiting = True
            self._call.enter_context(self._beside())
            self._waiting = False
        if self._stopped():
            return False
        self._began = True
        now = time.monotonic()
        timeout = self.limits.consume_timeout
        if self.delivery.kind == Kind.RETRY or self.delivery.attempt > 1:
            # The start is written before the call: a retry without a start keeps its attempt.
            self.delivery.start(timeout)
            self._extended = now
        elif now - self._extended > timeout.total_seconds() / 2:
            if not retrying(self.delivery.extend, self._using, timeout):
                raise LeaseLost
            self._extended = now
        return True

    def _gives_way(self) -> bool:
        """Tell whether other threads are to take the rest: the handler has become slow."""
        large = len(self.delivery.offsets) > self.limits.batch
        return large and self._began and time.monotonic() - self._ran_since > LONG_SECONDS

    def _stopped(self) -> bool:
        return self.lost or not self._may_go_on()

    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        span = range(self.delivery.progress, progress)
        unread = [Failure(n, BodyUnread()) for n in self._reading.unread.intersection(span)]
        if self.ordered and (failures or unread):
            # The first failed message ends the delivery: the messages after it wait for it.
            first = min([*unread, *failures], key=lambda failure: failure.offset)
            progress = first.offset + 1
            span = range(self.delivery.progress, progress)
            failures = [failure for failure in failures if failure is first]
            unread = [failure for failure in unread if failure is first]
        gone = self._reading.missing.intersection(span)
        missing = len(gone)
        passed = len(self._reading.passed.intersection(span))
        settlement = settle(
            self.delivery,
            progress,
            [*failures, *unread],
            max_retries=self.limits.max_retries,
            retry=self.limits.retry,
            missing=missing,
            passed=passed,
            running=timedelta(seconds=time.monotonic() - self._ran_since),
        )
        self.outcome.missing += missing
        self.outcome.passed += passed
        self.outcome.failed += len(failures)
        self.outcome.done += len(span) - missing - passed - len(failures) - len(unread)
        for one in settlement.judged:
            if one.failure in failures:
                self.outcome.dead += one.verdict is not None
                self.outcome.errors.append(one.failure.error)
        self._told.append(partial(self._tell, settlement, sorted(gone), span))
        if not self._atomic:
            self._tell_all()

    def _tell(self, settlement: Settlement, gone: list[int], span: range) -> None:
        if self._lines:
            outcomes = {one.failure.offset: "retry" for one in settlement.judged}
            outcomes |= {one.failure.offset: "dead" for one in settlement.dead}
            self._lines.write(span, outcomes, self.registration)
        place = self.registration.topic, self.registration.name
        notices.settled(self.delivery, settlement, gone, *place)

    def _where(self) -> dict[str, Any]:
        place = {"topic": self.registration.topic, "group": self.registration.group}
        return {
            **place,
            "partition": self.delivery.partition.number,
            "offset": self.delivery.first_offset,
            "delivery": self.delivery.pk,
        }

    def _tell_all(self) -> None:
        """Tell what is committed by now: a receiver must not run while EMS holds a lock."""
        told, self._told = self._told, []
        for tell in told:
            tell()

    def release(self) -> None:
        self.outcome.released = self.delivery.last_offset + 1 - self.delivery.progress
        release(self.delivery)

    def settle_atomically(
        self, call: Callable[[], list[Failure]], messages: Sequence[ReceivedMessage], after: int
    ) -> None:
        """Make the call and settle it in one transaction; a failure rolls both back."""
        delivery = self.delivery
        before = delivery.progress, delivery.last_offset, delivery.failed, delivery.missing
        noted = delivery.errors
        counted = replace(self.outcome, errors=list(self.outcome.errors))
        try:
            self._atomic = True
            with transaction.atomic(using=self._using):
                failures = self._within_transaction(call)
                with latest_rows(self._using):  # the heartbeat has changed the row of the delivery
                    self.settle(after, failures)
        except (LeaseLost, KeyboardInterrupt):
            raise
        except BaseException as error:
            if connection_lost(error):
                connections[self._using].close()
            # In an ordered group the delivery may have ended at a failed message before ``after``.
            written = delivery.progress
            if written > before[0] and self._was_committed(written):
                # The reply to the commit was lost, or an on_commit callback has failed.
                logger.warning(
                    "%s raised after its commit",
                    self.registration.name,
                    exc_info=error,
                    extra=event("handler.raised_after_commit", **self._where()),
                )
                self._tell_all()
                return
            self._told.clear()
            delivery.progress, delivery.last_offset, delivery.failed, delivery.missing = before
            delivery.errors = noted
            self.outcome = counted
            self._atomic = False
            self.settle(after, [Failure(message.offset, error) for message in messages])
        else:
            self._tell_all()
        finally:
            self._atomic = False

    def _within_transaction(self, call: Callable[[], list[Failure]]) -> list[Failure]:
        """Make the call; raise TransactionEnded if the transaction was not open all the time."""
        # A savepoint ends with its transaction. Without it, a deadlock that the handler swallows
        # has undone what it wrote, and the settlement after it would be committed alone.
        # Of the connection: in transaction it has another name from Django 6.1 on.
        connection: Any = connections[self._using]
        savepoint = connection.savepoint()
        failures = call()
        try:
            connection.savepoint_commit(savepoint)
        except OperationalError as error:
            if error_number(error) == NO_SUCH_SAVEPOINT or "no such savepoint" in str(error):
                raise TransactionEnded from error
            raise
        return failures

    def _was_committed(self, progress: int) -> bool:
        """Tell whether the transaction that moves progress to ``progress`` was committed."""
        if connections[self._using].in_atomic_block:
            return False

        def look() -> bool:
            with own_transaction(self._using):
                # The transaction in doubt holds the lock of this row until it ends.
                row = Delivery.objects.using(self._using).select_for_update()
                token = self.delivery.token
                return row.filter(pk=self.delivery.pk, token=token, progress=progress).exists()

        return retrying(look, self._using)

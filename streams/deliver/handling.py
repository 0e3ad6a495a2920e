"""Handles a claimed delivery: reads, calls, settles. Workers and streams.testing share it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import Error, OperationalError, connections, transaction

from streams.api import ReceivedMessage
from streams.consume.limits import Limits
from streams.consume.outcome import notices
from streams.consume.outcome.expire import was_given_up
from streams.consume.outcome.failure import Failure, judge
from streams.consume.outcome.settle import keep_below, lock_cursor, lock_held, release
from streams.consume.registry import Registration
from streams.consume.session import say, spoilt
from streams.database.retrying import (
    NO_SUCH_SAVEPOINT,
    connection_lost,
    error_number,
    retrying,
)
from streams.database.transactions import (
    latest_rows,
    own_transaction,
    supports_other_connections,
)
from streams.deliver.calls import Calls
from streams.deliver.closing import Closed, Outcome, close
from streams.deliver.key_starts import KeyStarts
from streams.deliver.opening import exhausted, hold, open_whole
from streams.deliver.pace import LONG_SECONDS, SHARED_SECONDS
from streams.deliver.reading import Reading
from streams.deliver.slot import UnreadSlot
from streams.deliver.starts import Starts
from streams.errors import LeaseLost, TransactionEnded, describe
from streams.log.calls import AT_LEAST
from streams.logs import event
from streams.models import Delivery, RetryMessage

logger = logging.getLogger("streams.handling")


class Handling(Calls):
    """The handling of one delivery of a cluster group in one thread, settled in the tables.

    ``may_go_on`` is called before each handler call. When it returns False, the messages that no
    call has been given are released with their attempt unspent. Each call, with its settlement, is
    made inside the context that ``beside`` makes; to enter it may wait for other calls.
    ``others_idle`` tells whether an idle thread of this process could make some of the calls.
    ``slot`` is where it notes how far it is, for those who find this process dead. ``starts`` are
    those of its thread in a group with a rate.
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
        others_idle: Callable[[], bool] = lambda: False,
        slot: UnreadSlot | None = None,
        starts: Starts | None = None,
    ) -> None:
        super().__init__(registration, delivery, limits, delivery.using, slot)
        self.delivery = delivery
        self.ordered = delivery.group.ordered
        self._retry = retry
        self._may_go_on = may_go_on
        self._beside = beside
        self._others_idle = others_idle
        self._starts = starts or Starts(delivery.group, delivery.using)
        self._key_starts: KeyStarts | None = None
        if starts and limits.rate and registration.rate_key:
            self._key_starts = KeyStarts(delivery, registration.rate_key, limits.rate)
        self._entered: AbstractContextManager[None] | None = None
        self._waiting = False
        self._reading = Reading(delivery, registration, retry)
        self._slot.claim(delivery, self._reading.left_out)
        self._counts_starts = delivery.counts_starts(is_last=limits.one_call)
        self._extended = self._ran_since = time.monotonic()
        # Under the lock ``_ending`` the delivery gets its end, a call begins, and an outcome is
        # written up to that end. Without it two would have an offset.
        # The end of the newest call that has begun; none has begun before there is something to
        # give back.
        self._begun = delivery.last_offset + 1
        self._atomic = False  # whether a transaction of the handler is open
        self._untold: list[Closed] = []

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs, or the next call waits for its turn."""
        return self._caller.running or self._waiting

    def renew(self, left: timedelta) -> None:
        """Extend the lease of the delivery by ``left``, or note that it is lost."""
        # Once lost, always lost: until the sweep has run, the row looks as if it were still held.
        if not self.delivery.extend_unless_locked(left):
            self.lost = True
            self.given_up = was_given_up(self.delivery)

    def run(self) -> Outcome:
        """Read the messages, call the handler and settle; return the outcome. Raises LeaseLost."""
        if failure := exhausted(self.delivery, self._retry, self.limits):
            self.settle(self.delivery.last_offset + 1, [failure])
            return self.outcome
        atomically = self._make_atomically if self.registration.atomic else None
        last = self.limits.one_call and len(self.delivery.offsets) > 1
        calls = self._one_call() if last else self._reading.calls(self._size)
        if self._key_starts:
            calls = self._key_starts.calls(calls, self._reading.left_out.early)
        try:
            self.make(calls, atomically)
        finally:
            self._leave()
        return self.outcome

    def _one_call(self) -> Iterator[list[ReceivedMessage]]:
        """Yield the messages of one call; the delivery holds no others then.

        Once it has begun, a death ends all that the delivery holds.
        """
        opened = open_whole(self.delivery, self._retry, self.limits, self.registration)
        if opened.closed:
            self._note(opened.closed)
        if opened.messages:
            hold(self.delivery, opened.messages)
            yield list(opened.messages)

    def may_begin(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Tell whether the next call may start now, and make the lease long enough for it."""
        self._leave()  # from the call before this one
        if self.gives_way:
            return False
        self._enter()
        return self._may_start(messages)

    def _may_start(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Tell the same, once it may run beside the calls of other threads."""
        if self._stopped() or not self._wait_for_slots(len(messages)):
            return False
        with self._ending:
            if messages[0].offset > self.delivery.last_offset:
                return False  # others have it
            self._begun = messages[-1].offset + 1
        now = time.monotonic()
        timeout = self.limits.consume_timeout
        if self._counts_starts:
            self.delivery.start(timeout)
            self._extended = now
        elif self._is_unsure(now):
            if not retrying(self.delivery.extend, self._using, timeout):
                raise LeaseLost
            self._extended = now
        if self._extended == now and self._stopped():
            return False  # the write may have waited out an outage, in which the lease has ended
        if self._key_starts and not self._key_starts.serve:
            return False
        return self._starts.begin(len(messages), self._stopped)

    def _wait_for_slots(self, number: int) -> bool:
        self._waiting = True
        try:
            if self._key_starts and not self._key_starts.wait(self._stopped):
                return False
            return self._starts.ready(number, self._stopped)
        finally:
            self._waiting = False

    def _enter(self) -> None:
        """Wait until a call may be made beside those of other threads, unless none is to begin."""
        if not self._stopped():
            self._waiting = True
            entered = self._beside()
            entered.__enter__()
            self._entered = entered
            self._waiting = False

    def _leave(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)

    def _is_unsure(self, now: float) -> bool:
        """Tell whether the lease may be over, or too short for a call."""
        # An operator may give up what takes long. In an ordered group nothing may follow that.
        slow = self.ordered and now - self._ran_since > AT_LEAST.total_seconds() / 2
        return slow or now - self._extended > self.limits.consume_timeout.total_seconds() / 2

    @property
    def gives_way(self) -> bool:
        """Tell whether other threads are to take the calls that have not begun: it takes long."""
        rest = self.delivery.last_offset + 1 - self._begun
        if rest <= 0 or self.ordered or self.lost:
            return False
        ran = time.monotonic() - self._ran_since
        if ran > LONG_SECONDS:
            return True
        late = ran > SHARED_SECONDS and not self._is_nearly_done(rest, ran)
        return late and self._others_idle()

    def _is_nearly_done(self, rest: int, ran: float) -> bool:
        """Tell whether the ``rest`` of the calls ends soon here: another claim would cost more."""
        made = self._begun - self.delivery.first_offset
        in_call = self._caller.runs_for() > SHARED_SECONDS
        return not in_call and rest * ran <= SHARED_SECONDS * made

    @property
    def can_share(self) -> bool:
        """Tell whether share() has something to do."""
        return self.gives_way or (not self.lost and self._leaves_ended())

    def _leaves_ended(self) -> bool:
        """Tell whether a call takes long, and what ended before it is not settled."""
        takes_long = self._caller.runs_for() > LONG_SECONDS
        return takes_long and self.delivery.progress < self._ended and not self._blocks

    @property
    def _blocks(self) -> bool:
        """Tell whether this ordered group waits for some of the claim: that is for the holder."""
        out = self._reading.left_out
        some = self._failures or self.delivery.parks or out.unread or out.early
        return self.ordered and bool(some)

    def share(self) -> None:
        """Settle what ended before the running call, and give back what is behind it.

        Another thread calls this. It does so if the call takes long, so that whoever ends it finds
        nothing else unsettled, and other threads take the rest. It waits neither for the holder nor
        for locks of others: later will do as well.
        """
        if self._atomic and not supports_other_connections(self._using):
            return  # the handler has locked the database
        if not self.can_share or not self._ending.acquire(blocking=False):
            return
        try:
            with suppress(LeaseLost):
                self._settle_ended()
                rest = self.delivery.last_offset + 1 - self._begun
                if self.gives_way and keep_below(self.delivery, self._begun, waits=False):
                    self.outcome.released += rest
        finally:
            self._ending.release()

    def _judged(self, failed: list[Failure]) -> list[Failure]:
        """Judge the failures here: share() runs in another thread, and locks the delivery."""
        if self.ordered:  # it shares no failures, and those after the first one are not judged
            return failed
        attempt, limits = self.delivery.attempt, self.limits
        judged = [judge(one, attempt, limits.max_retries, limits.retry) for one in failed]
        return [replace(one.failure, follows=one.follows) for one in judged]

    def _settle_ended(self) -> None:
        """Settle what has ended, for its holder, who is in a call; the caller has ``_ending``."""
        delivery, until = self.delivery, self._ended
        # What is behind the running call is given back after it, so not all may be settled here:
        # once that call has ended, its holder does it.
        if self.registration.atomic or self._blocks or not delivery.progress < until < self._begun:
            return
        running = timedelta(seconds=time.monotonic() - self._ran_since)
        before = delivery.progress, delivery.failed, delivery.missing, delivery.errors
        left_out = self._reading.left_out
        try:
            with own_transaction(self._using):
                if self.ordered and lock_cursor(delivery, skip_locked=True) is None:
                    return
                if not lock_held(delivery):
                    return
                closed = close(
                    *(delivery, until, self._failures, self.limits, left_out), running=running
                )
        except Error:
            if not self._was_committed(until):
                delivery.progress, delivery.failed, delivery.missing, delivery.errors = before
                raise
        self._failures, self._failed_bytes = [], 0
        self._settled = time.monotonic()
        self._untold.append(closed)  # the holder tells: a receiver may take long

    def _stopped(self) -> bool:
        return self.lost or not self._may_go_on()

    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        running = timedelta(seconds=time.monotonic() - self._ran_since)
        left_out = self._reading.left_out
        with self._ending:
            until = min(progress, self.delivery.last_offset + 1)
            # Of those before its progress share() has settled the outcome meanwhile.
            failures = [one for one in failures if one.offset >= self.delivery.progress]
            write = partial(close, self.delivery, until, failures, self.limits, left_out)
            try:
                closed = write(running=running)
            except Error as error:
                if self._atomic or not spoilt(error):
                    raise
                connections[self._using].close()
                say(self.registration.name, describe(error))
                closed = write(running=running)
        self._note(closed)

    def _note(self, closed: Closed) -> None:
        self._untold.append(closed)
        if not self._atomic:
            self._tell_all()

    def _tell_all(self) -> None:
        """Tell what is committed by now: a receiver must not run while EMS holds a lock."""
        untold, self._untold = self._untold, []
        for closed in untold:
            self.outcome.add(closed.outcome)
            if self._lines:
                self._lines.write(closed.span, closed.outcomes, self.registration)
            place = self.registration.topic, self.registration.name
            notices.settled(self.delivery, closed.settlement, closed.gone, *place)

    def release(self) -> None:
        with self._ending:
            rest = self.delivery.last_offset + 1 - self.delivery.progress
            if rest:  # else others have it
                self.outcome.released += rest
                release(self.delivery)

    def _make_atomically(self, messages: Sequence[ReceivedMessage]) -> None:
        """Make a call and settle it in one transaction; a failure rolls both back."""
        delivery, after = self.delivery, messages[-1].offset + 1
        before = delivery.progress, delivery.failed, delivery.missing
        last, noted = delivery.last_offset, delivery.errors
        try:
            self._atomic = True
            with transaction.atomic(using=self._using):
                failures = self._within_transaction(messages)
                with latest_rows(self._using):  # the heartbeat has changed the row of the delivery
                    self.settle(after, failures)
        except (LeaseLost, KeyboardInterrupt):
            raise
        except BaseException as error:
            if connection_lost(error) or self._caller.changed:
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
            self._untold.clear()
            delivery.progress, delivery.failed, delivery.missing = before
            delivery.errors = noted
            if self.ordered:  # the failed message was its end; in others the end may be given back
                delivery.last_offset = last
            self._atomic = False
            self.settle(after, self._caller.failed(messages, error))
        else:
            self._tell_all()
        finally:
            self._atomic = False

    def _where(self) -> dict[str, Any]:
        place = {"topic": self.registration.topic, "group": self.registration.group}
        return {
            **place,
            "partition": self.delivery.partition.number,
            "offset": self.delivery.first_offset,
            "delivery": self.delivery.pk,
        }

    def _within_transaction(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
        """Make the call; raise TransactionEnded if the transaction was not open all the time."""
        # A savepoint ends with its transaction. Without it, a deadlock that the handler swallows
        # has undone what it wrote, and the settlement after it would be committed alone.
        # Of the connection: in transaction it has another name from Django 6.1 on.
        connection: Any = connections[self._using]
        savepoint = connection.savepoint()
        failures = self._caller.called(messages)
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

"""Consumes the messages of a test, as processes do that may die at any statement."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import Error, connections

from streams.chaos.statements import Died, DiedInTask, Statements, in_memory
from streams.consume import event_loop
from streams.consume.limits import limits
from streams.consume.registry import Registration
from streams.consume.subscription import subscribe
from streams.database.retrying import transient
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.deliver.turns import Turns
from streams.errors import LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    RetryMessage,
    Start,
    UtcNow,
)
from streams.steps.sweep import sweep
from streams.testing import advance

# Longer than every lease, and than every step of the ladder of retries.
LONG = timedelta(days=1)
# More than the attempts that a message has by default.
ROUNDS = 40
# How long another consumer waits for a row that a frozen one has locked. The least that MySQL has.
LOCK_WAIT_SECONDS = 1


class NeverEnds(AssertionError):
    """The messages never come to an end: after many rounds some are neither done nor dead."""


class Consumers:
    """A run of the handlers of ``registrations``, in this thread or beside it."""

    def __init__(
        self, registrations: Sequence[Registration], aliases: Sequence[str], using: str
    ) -> None:
        self._aliases = aliases
        self._using = using
        self._pairs = [(r, subscribe(r, using, Start.EARLIEST)) for r in registrations]
        sequence(using)

    @property
    def groups(self) -> list[ConsumerGroup]:
        return [group for _registration, group in self._pairs]

    @property
    def never_repeated(self) -> list[ConsumerGroup]:
        """Return the groups whose messages are tried once, as their limits say."""
        return [
            group
            for registration, group in self._pairs
            if limits(group, registration, self._using).max_retries == 0
        ]

    def connect(self) -> None:
        """Open the connections of this thread: what that takes is not a statement of a handler."""
        for alias in self._aliases:
            connections[alias].ensure_connection()

    def waiting(self) -> int:
        """Return how many messages the groups have not claimed yet."""
        cursors = Cursor.objects.using(self._using).select_related("partition")
        found = cursors.filter(group__in=self.groups)
        return sum(c.partition.next_offset - c.next_offset for c in found)

    def consume(self, statements: Statements, batch: int | None = None) -> None:
        """Handle all that is due, in batches of at most ``batch``; raises Died."""
        died = threading.Event()

        def work() -> None:
            try:
                self._consume(statements, batch)
            except Died:  # it must not end the event loop
                died.set()

        if any(registration.asynchronous for registration, _group in self._pairs):
            event_loop.with_event_loop(work)
        else:
            work()
        if died.is_set():
            raise Died

    def finish(self, statements: Statements) -> None:
        """Let leases end and retries become due, until nothing is left. Raises NeverEnds."""
        for _round in range(ROUNDS):
            self.consume(statements)
            if not self._unfinished():
                return
            self.expire()
        raise NeverEnds(f"the messages are neither done nor dead after {ROUNDS} rounds")

    def expire(self, by: timedelta = LONG) -> None:
        """Let all leases end, as if their processes were dead, and all retries become due."""
        advance(by, using=self._using)
        sweep(self._using)
        advance(by, using=self._using)

    def shift(self, by: timedelta) -> None:
        """Set the clock of the server forward by ``by``, or back, as the rows of EMS see it."""
        advance(by, using=self._using)

    def beside(self, work: Callable[[], object], statements: Statements) -> None:
        """Do ``work`` as another process, on other connections, while this one stands still."""
        mine = [connections[alias] for alias in self._aliases]
        shared = [connection for connection in mine if in_memory(connection)]
        failure: list[BaseException] = []

        def run() -> None:
            try:
                for connection in shared:  # the only one that sees the database
                    connections[connection.alias] = connection
                for alias in self._aliases:
                    _wait_shortly(connections[alias])
                work()
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                failure.append(error)
            finally:
                connections.close_all()

        for connection in shared:
            connection.inc_thread_sharing()
        try:
            with statements.paused():
                thread = threading.Thread(target=run, name="ems-chaos", daemon=True)
                thread.start()
                thread.join()
        finally:
            for connection in shared:
                connection.dec_thread_sharing()
        if failure:
            raise failure[0]

    def reorder(self, order: Callable[[list[Any]], Sequence[Any]]) -> list[int]:
        """Make the messages come one by one, in the ``order`` that is made of their retries.

        Their first process died. Returns their offsets in that order.
        """
        for registration, group in self._pairs:
            claimer = self._claimer(group)
            while claimer.claim(1000, limits(group, registration, self._using).consume_timeout):
                pass
        self.expire()
        retries = RetryMessage.objects.using(self._using).filter(group__in=self.groups)
        rows = order(list(retries.order_by("partition", "offset")))
        for number, row in enumerate(rows):
            retries.filter(pk=row.pk).update(due_at=UtcNow(timedelta(seconds=number) - LONG))
        return [row.offset for row in rows]

    def _claimer(self, group: ConsumerGroup) -> Claimer:
        return Claimer(group, "streams.chaos", "worker-0", self._using)

    def _unfinished(self) -> bool:
        mine = {"group__in": self.groups}
        return (
            Delivery.objects.using(self._using).open().filter(**mine).exists()
            or RetryMessage.objects.using(self._using).filter(**mine).exists()
            or self.waiting() > 0
            or Message.objects.using(self._using)
            .filter(offset=None, partition__topic__in=[group.topic_id for group in self.groups])
            .exists()
        )

    def _consume(self, statements: Statements, batch: int | None) -> None:
        found = True
        while found:
            sequence(self._using)
            found = False
            for registration, group in self._pairs:
                for handling in self._handlings(registration, group, statements, batch):
                    found = True
                    self._run(handling, statements)

    def _run(self, handling: Handling, statements: Statements) -> None:
        """Handle a delivery; what a worker thread survives is survived here, too."""
        try:
            with statements.counting(handling):
                handling.run()
        except LeaseLost:
            pass
        except Error as error:
            if not transient(error):
                raise
            connections[self._using].close()

    def _handlings(
        self,
        registration: Registration,
        group: ConsumerGroup,
        statements: Statements,
        batch: int | None,
    ) -> Iterator[Handling]:
        turns = Turns(self._claimer(group))
        current = limits(group, registration, self._using)
        current = replace(current, batch=batch or current.batch)
        seconds = current.consume_timeout.total_seconds()
        noted = replace(registration, handler=_noting(registration, statements, seconds))
        at_once = current.claimed_at_once(registration)
        while claimed := turns.claim(at_once, current.consume_timeout):
            yield Handling(claimed.delivery, noted, current, retry=claimed.retry)


def _noting(
    registration: Registration, statements: Statements, seconds: float
) -> Callable[[Any], Any]:
    """Return the handler as a plain function, which notes the offsets of each call first."""
    handler = registration.handler

    @functools.wraps(handler)
    def call(argument: Any) -> Any:
        messages = [argument] if registration.batch is None else argument
        statements.offsets = [message.offset for message in messages]
        if not registration.asynchronous:
            return handler(argument)
        statements.in_task = True
        try:
            return event_loop.run(handler(argument), seconds, 0.0)
        except DiedInTask:
            raise Died from None
        finally:
            statements.in_task = False

    return call


def _wait_shortly(connection: Any) -> None:
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS:d}")

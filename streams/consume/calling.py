"""Calls a handler for the messages of one stretch of the log, and records each outcome."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from django.db import connections

from streams.api import ReceivedMessage
from streams.consume import event_loop
from streams.consume.middleware import wrapped
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.lines import Lines
from streams.consume.registry import Registration
from streams.telemetry import around

# In seconds. Finished calls are settled at least this often, so a crash repeats the calls of at
# most this time, and the one that was running.
CHECKPOINT_SECONDS = 1.0
# Failed calls are settled when their messages have this many bytes: an error keeps the message, and
# what the handler has made of it, in memory.
CHECKPOINT_BYTES = 1024 * 1024


class Stretch(Protocol):
    """Describes a range of offsets of one partition; ``progress`` is the first one not settled."""

    progress: int
    last_offset: int


class Settler(Protocol):
    """Records the outcome of the calls.

    A cluster group writes it to the tables, a broadcast group to the disk of its client.
    """

    @property
    def ordered(self) -> bool:
        """Tell whether the messages after a failed one wait for it."""

    def may_begin(self) -> bool:
        """Tell whether the next call may start now."""

    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        """Record the outcome of all offsets below ``progress``."""

    def release(self) -> None:
        """Give back the messages that no call has been given."""

    def settle_atomically(
        self, call: Callable[[], list[Failure]], messages: Sequence[ReceivedMessage], after: int
    ) -> None:
        """Make the call and record its outcome in one transaction: both happen, or neither.

        ``after`` is the offset after the last of ``messages``.
        """


class Calls:
    """Makes the handler calls of one thread for one stretch."""

    def __init__(
        self,
        registration: Registration,
        stretch: Stretch,
        settler: Settler,
        *,
        timeout: timedelta,
        using: str,
        lines: Lines | None = None,
    ) -> None:
        self._registration = registration
        self._stretch = stretch
        self._settler = settler
        self._handler = around(wrapped(self._call), registration, stretch, using)
        self._timeout = timeout.total_seconds()
        self._async = registration.asynchronous
        self._using = using
        self._lines = lines
        self._since: float | None = None
        self.running = False
        self._settled = time.monotonic()

    def time_left(self) -> timedelta:
        """Return the time until the running call, or the next one, is overdue.

        After a call it counts from the end of that, until the next one may begin: if the
        settlement hangs, the lease ends. It is negative once the call is overdue; a handler that is
        cancelled then has time to clean up. The heartbeat calls this from another thread.
        """
        return timedelta(seconds=self._left() + event_loop.CLEAN_UP_SECONDS * self._async)

    def _left(self) -> float:
        since = self._since
        elapsed = 0.0 if since is None else time.monotonic() - since
        return self._timeout - elapsed

    def run(self, calls: Iterable[list[ReceivedMessage]]) -> None:
        """Make the handler calls, and settle the outcomes; ``calls`` has the messages of each.

        A call is taken from ``calls`` when its turn comes, so that its messages are let go once
        they are handled. After the last one the whole stretch is settled: for the other offsets
        there is no call to make.
        """
        stretch, settler = self._stretch, self._settler
        failures: list[Failure] = []
        failed_bytes = 0
        position = stretch.progress
        for messages in calls:
            if not self._may_begin():
                if position > stretch.progress:
                    self._settle(position, failures)
                settler.release()
                return
            position = messages[-1].offset + 1
            if self._registration.atomic:
                settler.settle_atomically(partial(self._called, messages), messages, position)
            else:
                if failed := self._failures(messages):
                    failures += failed
                    failed_bytes += sum(len(message.raw_body) for message in messages)
                checkpoint = time.monotonic() - self._settled > CHECKPOINT_SECONDS
                checkpoint = checkpoint or failed_bytes > CHECKPOINT_BYTES
                if checkpoint or (failures and settler.ordered):
                    self._settle(position, failures)
                    failures, failed_bytes = [], 0
            if stretch.progress > stretch.last_offset:
                return
        if stretch.progress <= stretch.last_offset:
            self._settle(stretch.last_offset + 1, failures)

    def _settle(self, progress: int, failures: Sequence[Failure]) -> None:
        self._settler.settle(progress, failures)
        self._settled = time.monotonic()

    def _may_begin(self) -> bool:
        self._since = None  # while it waits for its turn, the lease is extended
        begins = self._settler.may_begin()
        self._since = time.monotonic()
        return begins

    # -- one call --

    def _failures(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
        """Make a call; return what has failed."""
        try:
            return self._called(messages)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises
            return [Failure(message.offset, error) for message in messages]

    def _called(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
        """Make a call; return what the handler says has failed, and raise what it raises."""
        if self._registration.batch is None:
            (message,) = messages
            self._timed(message)
            return []
        returned = self._timed(messages)
        if returned is None:
            return []
        valid = isinstance(returned, Mapping) and set(returned) <= set(messages)
        if not valid or not all(isinstance(e, BaseException) for e in returned.values()):
            raise TypeError(
                f"{self._registration.name} must return None or {{message: exception}}, "
                f"not {returned!r:.200}"
            )
        return [Failure(message.offset, error) for message, error in returned.items()]

    def _timed(self, argument: Any) -> Any:
        self._since = began = time.monotonic()
        self.running = True
        try:
            returned = self._handler(argument)
        finally:
            self.running = False
            self._since = time.monotonic()
            if self._lines is not None:
                self._lines.note(argument, time.monotonic() - began)
            left_open = self._left_open()
            if left_open:  # the outcome must not be written in it
                connections[self._using].close()
        if left_open:
            raise RuntimeError("the handler left a transaction open: it was rolled back")
        return returned

    def _call(self, argument: Any) -> Any:
        """Call the handler, inside the middleware of the project; return what it returns."""
        registration = self._registration
        returned = registration.handler(argument)
        if self._async:
            spent = self._timeout - self._left()
            returned = event_loop.run(returned, self._timeout, spent)
        elif inspect.iscoroutine(returned) or inspect.isgenerator(returned):
            returned.close()
            raise TypeError(f"{registration.name} only made {returned!r}: nothing has run")
        if registration.batch is None and returned is not None:
            raise TypeError(
                f"{registration.name} must return None, not {returned!r:.200}: to fail, raise an"
                " exception"
            )
        return returned

    def _left_open(self) -> bool:
        connection = connections[self._using]
        if connection.in_atomic_block:
            if not self._registration.atomic:
                # The transaction is that of a TestCase. In production the handler is in none, so
                # a statement that fails must not break the one of the test either.
                connection.set_rollback(False)
            return False
        if connection.connection is None:
            return False
        return bool(connection.settings_dict["AUTOCOMMIT"] and not connection.autocommit)

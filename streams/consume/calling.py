"""Calls a handler for the messages of one stretch of the log, and says what has failed."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from streams.api import ReceivedMessage
from streams.consume import event_loop
from streams.consume.middleware import wrapped
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.lines import Lines
from streams.consume.registry import Registration
from streams.consume.session import Session, say
from streams.consume.typed import make_body, sorted_out
from streams.errors import SessionChanged
from streams.telemetry import around
from streams.typed.typed_body import TypedBody


class Stretch(Protocol):
    """A range of offsets of one partition; ``progress`` is the first one not settled."""

    progress: int
    last_offset: int


class HandlerCaller:
    """The handler of a group, as one thread calls it for one stretch; for a rehearsal, for none."""

    def __init__(
        self,
        registration: Registration,
        stretch: Stretch | None,
        *,
        timeout: timedelta,
        using: str,
        lines: Lines | None = None,
    ) -> None:
        self._registration = registration
        kind = registration.body
        call = self._run if kind is None else partial(self._call_typed, kind)
        self._handler = around(wrapped(call), registration, stretch, using)
        self._timeout = timeout.total_seconds()
        self._own_timeout: float | None = None  # of the message of the running or last call
        self._async = registration.asynchronous
        self._lines = lines
        self._session = Session(using)
        # Whether the handler has left the session of its connection otherwise than it was.
        self.changed = False
        # When the time of the running or next call began; None while that waits for its turn.
        self.since: float | None = None
        self.running = False
        # Of the running or last call: what its handler did not get, since the body does not fit.
        self._refused: dict[ReceivedMessage, Exception] = {}

    def time_left(self) -> timedelta:
        """Return the time until the running call, or the next one, is overdue.

        After a call it counts from the end of that, until the next one may begin: if the
        settlement hangs, the lease ends. It is negative once the call is overdue; a handler that is
        cancelled then has time to clean up. The heartbeat calls this from another thread.
        """
        return timedelta(seconds=self._left() + event_loop.CLEAN_UP_SECONDS * self._async)

    def runs_for(self) -> float:
        """Return how many seconds the running call has taken so far; 0 if none runs."""
        return self._elapsed() if self.running else 0.0

    @property
    def overdue(self) -> bool:
        """Tell whether the running call takes longer than its message allows."""
        own = self._own_timeout
        return self.running and own is not None and self._elapsed() > own

    def _left(self) -> float:
        return self._timeout - self._elapsed()

    def _elapsed(self) -> float:
        since = self.since
        return 0.0 if since is None else time.monotonic() - since

    def failures(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
        """Make a call; return what has failed."""
        try:
            return self.called(messages)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises
            return self.failed(messages, error)

    def failed(self, messages: Sequence[ReceivedMessage], error: BaseException) -> list[Failure]:
        """Return the failures of a call that raised ``error``: it did not get all ``messages``."""
        refused = self._refused
        return [Failure(message.offset, refused.get(message, error)) for message in messages]

    def called(self, messages: Sequence[ReceivedMessage]) -> list[Failure]:
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
        if (timeout_of := self._registration.own_timeout) is not None:
            self._own_timeout = timeout_of(argument)
        self.since = began = time.monotonic()
        self.running = True
        try:
            with self._session:
                returned = self._handler(argument)
        finally:
            self.running = False
            self.since = time.monotonic()
            if self._lines is not None:
                self._lines.note(argument, time.monotonic() - began)
            left = self._mended()
        if left:
            raise SessionChanged(f"The handler left its connection changed: {left}.")
        return returned

    def _call_typed(self, kind: TypedBody, argument: Any) -> Any:
        """Call the handler with typed bodies; what it does not get, since it does not fit, failed.

        A group that is ordered waits at a failed message, so nothing is left behind one.
        """
        if self._registration.batch is None:
            make_body(argument, kind)
            return self._run(argument)
        ordered = self._registration.ordered is True
        fit, self._refused = sorted_out(argument, kind, ordered=ordered)
        returned = self._run(fit) if fit else None
        if isinstance(returned, Mapping | None):
            return {**(returned or {}), **self._refused} or None
        return returned

    def _run(self, argument: Any) -> Any:
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

    def _mended(self) -> str:
        """Return what the handler has left on the connection, where no outcome is written."""
        connection = self._session.connection
        if connection.in_atomic_block and not self._registration.atomic:
            # The transaction is that of a TestCase. In production the handler is in none, so
            # a statement that fails must not break the one of the test either.
            connection.set_rollback(False)
        left = self._session.left()
        self.changed = bool(left)
        if left:
            self._session.mend()
            say(self._registration.name, left)
        return left

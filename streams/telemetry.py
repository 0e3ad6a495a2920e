"""Tells observers what this process does: metrics and tracing, where somebody wants them.

Without an observer a place costs one look at ``observers``. With one, what it does never changes
the outcome of the work: its errors are logged, at most one in FAILURE_SECONDS.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from streams.logs import event

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[Any], Any]
# Called at the end of the work, with what it returned or raised.
End = Callable[[Any, BaseException | None], None]

logger = logging.getLogger("streams.telemetry")

# What begin() is told of.
SEND, CLAIM, SETTLE, RELEASE, SEQUENCE = "send", "claim", "settle", "release", "sequence"
CHECK, PREPARE, COMMIT = "check", "prepare", "commit"

LOOK_SECONDS = 1.0
FAILURE_SECONDS = 60.0


class Observer:
    """What is told about this process. Each method does nothing until a subclass defines it."""

    def begin(self, what: str, *args: Any) -> End | None:
        """Note that the work ``what`` begins; return what to call at its end, or None.

        ``args`` are those of the function: of CLAIM a Claimer, of SETTLE and RELEASE a Delivery
        first, or of SETTLE the Ends of several; of SEND and PREPARE a Sending; of CHECK the name
        of a checker; of COMMIT the row of the prepared message, and the alias.
        """
        return None

    def around(self, handler: Handler, registration: Any, stretch: Any, using: str) -> Handler:
        """Return ``handler``, or a function that calls it, for the calls of one stretch."""
        return handler

    def handled(self, registration: Any, outcome: Any) -> None:
        """Note the Outcome of one delivery or stretch."""

    def count(self, name: str, labels: tuple[str, ...]) -> None:
        """Add one to the counter ``name``."""


observers: tuple[Observer, ...] = ()

_silent: ContextVar[bool] = ContextVar("ems_telemetry_is_silent", default=False)
_look: Callable[[], object] | None = None
_look_at = math.inf
_looking = threading.Lock()
_failed_at = -math.inf


def observe(observer: Observer) -> None:
    """Tell ``observer`` from now on."""
    global observers
    if observer not in observers:
        observers = (*observers, observer)


def ignore(observer: Observer) -> None:
    """Tell ``observer`` no longer."""
    global observers
    observers = tuple(one for one in observers if one is not observer)


def look_for(look: Callable[[], object] | None) -> None:
    """Call ``look`` at most once in LOOK_SECONDS, before a send or a delivery; None: no more."""
    global _look, _look_at
    _look, _look_at = look, -math.inf if look else math.inf


def active() -> tuple[Observer, ...]:
    """Return the observers, after a look for one that is to come."""
    global _look_at
    # Two looks at once would both find the same, and each would be observed by its own.
    if time.monotonic() >= _look_at and _looking.acquire(blocking=False):
        try:
            _look_at = time.monotonic() + LOOK_SECONDS
            if _look:
                safely(_look)
        finally:
            _looking.release()
    return _told()


def _told() -> tuple[Observer, ...]:
    return () if observers and _silent.get() else observers


@contextmanager
def silence() -> Iterator[None]:
    """Tell no observer of what is done in the block: a rehearsal is not the work that it tries."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def run(what: str, work: Callable[[], T], *args: Any) -> T:
    """Do ``work`` and return its result; tell the observers when it begins and ends."""
    ends = [end for one in observers if (end := safely(one.begin, what, *args))]
    try:
        result = work()
    except BaseException as error:
        for end in reversed(ends):
            safely(end, None, error)
        raise
    for end in reversed(ends):
        safely(end, result, None)
    return result


def observed(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Tell the observers of each call of the decorated function."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not observers or _silent.get():
                return function(*args, **kwargs)
            return run(what, lambda: function(*args, **kwargs), *args)

        return call

    return decorate


def around(handler: Handler, registration: Any, stretch: Any, using: str) -> Handler:
    """Return ``handler`` inside what the observers put around it."""
    for one in active():
        handler = safely(one.around, handler, registration, stretch, using) or handler
    return handler


def handled(registration: Any, outcome: Any) -> None:
    """Tell the observers of the outcome of one delivery or stretch."""
    for one in _told():
        safely(one.handled, registration, outcome)


def count(name: str, *labels: str) -> None:
    """Let the observers add one to the counter ``name``."""
    for one in _told():
        safely(one.count, name, labels)


def safely(work: Callable[..., T], *args: Any) -> T | None:
    """Return what ``work`` returns; None if it fails: no error of an observer changes a result."""
    global _failed_at
    try:
        return work(*args)
    except Exception as error:
        now = time.monotonic()
        if now >= _failed_at + FAILURE_SECONDS:
            _failed_at = now
            logger.exception(
                "Telemetry failed, the work goes on",
                extra=event("telemetry.failed", error=type(error).__name__),
            )
        return None

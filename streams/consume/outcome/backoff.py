"""Defines retry policies: when a failed message comes back, without a database."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from streams.conf import settings
from streams.durations import parse_duration
from streams.errors import MAX_DELAY, InvalidDuration, InvalidRetryPolicy
from streams.logs import event

logger = logging.getLogger("streams.retries")

# The largest share by which a delay is shortened or lengthened at random, so that messages that
# failed together do not come back together.
JITTER = 0.2


@runtime_checkable
class RetryPolicy(Protocol):
    """When a failed message comes back."""

    def delay_after(self, attempt: int, error: BaseException) -> timedelta | None:
        """Return how long to wait after the failed attempt ``attempt`` (from 1) that raised
        ``error``; None gives up: the message is a dead letter now.
        """


@dataclass(frozen=True)
class Ladder:
    """A policy that waits the first delay after the first attempt, and so on; the last one repeats.

    ``delays`` are seconds. ``jitter`` is the largest share by which a delay is shortened or
    lengthened.
    """

    delays: tuple[float, ...]
    jitter: float = JITTER

    def delay_after(self, attempt: int, error: BaseException) -> timedelta:
        return _spread(self.delays[min(attempt, len(self.delays)) - 1], self.jitter)


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """A policy that waits ``first``, then ``factor`` times as long each time, up to ``at_most``.

    ``first`` and ``at_most`` are timedeltas or seconds. ``jitter``, from 0 to below 1, is the
    largest share by which a delay is shortened or lengthened. Truncated exponential backoff, as of
    IEEE 802.3. Raises InvalidRetryPolicy.
    """

    first: timedelta | float = 1.0
    factor: float = 2.0
    at_most: timedelta | float = 3600.0
    jitter: float = JITTER

    def __post_init__(self) -> None:
        first, at_most = _seconds(self.first), _seconds(self.at_most)
        if at_most < first:
            raise InvalidRetryPolicy("at_most must not be less than first.")
        if not _is_number(self.factor) or self.factor < 1:
            raise InvalidRetryPolicy("factor must be a number of 1 or more.")
        if not _is_number(self.jitter) or not 0 <= self.jitter < 1:
            raise InvalidRetryPolicy("jitter must be a number from 0 to below 1.")

    def delay_after(self, attempt: int, error: BaseException) -> timedelta:
        first, at_most = _seconds(self.first), _seconds(self.at_most)
        # Compared by logarithms, since factor ** attempt may be too large for a float.
        reached = math.log(first) + (attempt - 1) * math.log(self.factor) >= math.log(at_most)
        seconds = at_most if reached else first * self.factor ** (attempt - 1)
        return _spread(seconds, self.jitter)


def retry_policy(value: Any) -> RetryPolicy:
    """Return ``value`` as a policy: a policy itself, or a sequence of delays.

    Delays are timedeltas or seconds. Raises InvalidRetryPolicy.
    """
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not value:
            raise InvalidRetryPolicy("retry needs one delay or more.")
        return Ladder(tuple(_seconds(delay) for delay in value))
    if isinstance(value, type) or not callable(getattr(value, "delay_after", None)):
        raise InvalidRetryPolicy(
            "retry must be a sequence of delays, Exponential(…), or an object with"
            f" delay_after(attempt, error), not {value!r}."
        )
    policy: RetryPolicy = value
    return policy


EXPONENTIAL = re.compile(r"exponential\s*\((?P<arguments>[^()]*)\)", re.IGNORECASE)
ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "first": parse_duration,
    "factor": float,
    "at_most": parse_duration,
    "jitter": float,
}


def parse_retry_policy(text: str) -> RetryPolicy:
    """Read a policy from text: ``10s, 1m, 1h`` or ``exponential(first=10s, at_most=1h)``.

    Raises InvalidRetryPolicy.
    """
    match = EXPONENTIAL.fullmatch(text.strip())
    try:
        if match is None:
            return retry_policy([parse_duration(part) for part in text.split(",")])
        given: dict[str, Any] = {}
        for argument in filter(None, map(str.strip, match["arguments"].split(","))):
            name, _equals, value = (part.strip() for part in argument.partition("="))
            if name not in ARGUMENTS or name in given:
                raise InvalidRetryPolicy(
                    "exponential() takes first, factor, at_most and jitter, each once, not"
                    f" {argument!r}."
                )
            given[name] = ARGUMENTS[name](value)
        return Exponential(**given)
    except InvalidRetryPolicy:
        raise
    except (InvalidDuration, ValueError) as error:
        raise InvalidRetryPolicy(str(error)) from error


def default_policy() -> RetryPolicy:
    """Return the policy of a group without its own: the ladder of ``EMS["RETRY_DELAYS"]``."""
    return Ladder(tuple(settings().RETRY_DELAYS))


def delay_after(policy: RetryPolicy, attempt: int, error: BaseException) -> timedelta | None:
    """Ask ``policy``, which may be the project's own code; None gives up.

    If it raises, or gives anything but None or a duration from 0 to a century, that is logged and
    the default policy decides: a mistake in a policy must neither lose a message nor repeat it
    without a pause.
    """
    try:
        delay = policy.delay_after(attempt, error)
        if delay is None or (
            isinstance(delay, timedelta) and timedelta(0) <= delay <= MAX_DELAY  # type: ignore[redundant-expr]
        ):
            return delay
        raise TypeError(f"delay_after() gave {delay!r}")
    except Exception as failure:
        logger.exception(
            "The retry policy %r failed: EMS['RETRY_DELAYS'] decides",
            policy,
            extra=event("retry_policy.failed", error=type(failure).__name__),
        )
        return default_policy().delay_after(attempt, error)


def exhausted(attempt: int, max_retries: int) -> bool:
    """Tell whether no attempt is left after the failed attempt ``attempt`` (from 1)."""
    return attempt > max_retries


def _spread(seconds: float, jitter: float) -> timedelta:
    return timedelta(seconds=seconds * random.uniform(1 - jitter, 1 + jitter))  # noqa: S311


def _seconds(delay: Any) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not _is_number(seconds) or not 0 < seconds <= MAX_DELAY.total_seconds():
        raise InvalidRetryPolicy(
            f"A delay must be a timedelta or a number of seconds above 0, not {delay!r}."
        )
    return float(seconds)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

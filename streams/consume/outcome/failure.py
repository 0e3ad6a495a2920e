"""Defines a handler's failure, what follows from it, and the errors that EMS gives as reasons."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from streams.conf import settings
from streams.consume.outcome.backoff import RetryPolicy, delay_after, exhausted
from streams.errors import Postpone, Reject, Retry, describe
from streams.models import Again, Verdict


class ProcessDied(Exception):
    """The process that handled the message died, or its lease expired."""

    def __str__(self) -> str:
        return str(self.__doc__)


class CallGivenUp(Exception):
    """An operator gave the call up, since it took much longer than usual."""

    def __str__(self) -> str:
        return str(self.__doc__)


class BodyUnread(Postpone):
    """The body of the message was not there when it was to be read."""

    def __init__(self) -> None:
        super().__init__(settings().RETRY_DELAYS[0])

    def __str__(self) -> str:
        return str(self.__doc__)


class NotBegun(Postpone):
    """A message of its key before it has failed, or was in a call when the process stopped."""

    def __init__(self) -> None:
        super().__init__(0)

    def __str__(self) -> str:
        return str(self.__doc__)


class KeyHeldBack(Postpone):
    """The rate of its key lets the message begin later: no attempt was made."""

    def __init__(self, until: float) -> None:
        super().__init__(0)
        self._until = until  # of the monotonic clock

    def __str__(self) -> str:
        return str(self.__doc__)

    @property
    def delay(self) -> timedelta:
        return timedelta(seconds=max(0.0, self._until - time.monotonic()))


class AttemptsExhausted(Exception):
    """No attempt was left when the message came up again."""


class ResourceAway(Exception):
    """What the handler needs is away, such as the broker of a relay: no message has failed.

    The message and those after it are given back with their attempts unspent, and the group rests
    in this process: see process/shared/rest.py.
    """


class SkippedByOperator(Exception):
    """An operator skipped the message, which blocked an ordered group."""


@dataclass(frozen=True)
class Failure:
    """An offset whose handler raised, and the error; ``follows`` is set once it was judged."""

    offset: int
    error: BaseException
    follows: Again | Verdict | None = None


@dataclass(frozen=True)
class Judged:
    """A failure and what follows from it: another attempt, or the end.

    If it is ``postponed``, nothing has failed: it comes again later, with its attempt unspent. It
    counts as failed nowhere, and nobody is told.
    """

    failure: Failure
    follows: Again | Verdict
    postponed: bool = False

    @property
    def again(self) -> Again | None:
        return self.follows if isinstance(self.follows, Again) else None

    @property
    def verdict(self) -> Verdict | None:
        return self.follows if isinstance(self.follows, Verdict) else None


def judge(failure: Failure, attempt: int, max_retries: int, policy: RetryPolicy) -> Judged:
    """Say what follows from the failed attempt ``attempt`` (from 1).

    It asks ``policy``, which may be the project's own code, so do not call it under a lock of EMS,
    unless the failure was judged before: then nobody is asked again.
    """
    offset, error = failure.offset, failure.error
    if isinstance(error, Postpone):
        again = Again(offset, attempt, error.delay, describe(error))
        return Judged(failure, again, postponed=True)
    if failure.follows is not None:
        return Judged(failure, failure.follows)
    if not isinstance(error, Reject) and not exhausted(attempt, max_retries):
        delay = error.delay if isinstance(error, Retry) else None
        if delay is None:
            delay = delay_after(policy, attempt, error)
        if delay is not None:
            return Judged(failure, Again(offset, attempt + 1, delay, describe(error)))
    return Judged(failure, Verdict.of(error, offset, attempt))

"""A handler's failure, and the errors that EMS itself gives as the reason of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from streams.conf import settings
from streams.consume.outcome import backoff
from streams.errors import Reject, Retry, describe
from streams.models.retry import Again


class ProcessDied(Exception):
    """The process that handled the message died, or its lease ran out."""

    def __str__(self) -> str:
        return str(self.__doc__)


class BodyUnread(Exception):
    """The body of the message was not there when it was to be read."""

    def __str__(self) -> str:
        return str(self.__doc__)


class AttemptsExhausted(Exception):
    """No attempt was left when the message came up again."""


@dataclass(frozen=True)
class Failure:
    """One offset whose handler raised."""

    offset: int
    error: BaseException

    def is_final(self, attempt: int, max_retries: int) -> bool:
        if isinstance(self.error, BodyUnread):
            return False  # no attempt was made
        return isinstance(self.error, Reject) or backoff.exhausted(attempt, max_retries)

    def again(self, attempt: int) -> Again:
        if isinstance(self.error, BodyUnread):
            soon = timedelta(seconds=settings().RETRY_DELAYS[0])
            return Again(self.offset, attempt, soon, describe(self.error))
        delay = self.error.delay if isinstance(self.error, Retry) else None
        if delay is None:
            delay = backoff.delay_after(attempt, settings().RETRY_DELAYS)
        return Again(self.offset, attempt + 1, delay, describe(self.error))

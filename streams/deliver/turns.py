"""Claims retries and new messages of a group, by turns while there are both."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from streams.deliver.claim import Behind, Claimer
from streams.models import Delivery, RetryMessage


class Claimed(NamedTuple):
    """A delivery that was claimed, with its row if it is a retry."""

    delivery: Delivery
    retry: RetryMessage | None = None


@dataclass
class Turns:
    """The claims of one thread in one group, and whose turn it is.

    A turn of retries is one of them, or takes ``new_seconds``: as long as the last claim of several
    batches has taken.
    """

    claimer: Claimer
    last_was_retry: bool = False
    new_seconds: float = 0.0
    _retries_until: float = 0.0  # of the monotonic clock

    def claim(self, batch: int, timeout: timedelta) -> Claimed | None:
        """Claim a due retry or new messages; None if there is neither. Raises LeaseLost."""
        turn_of_retries = not self.last_was_retry or time.monotonic() < self._retries_until
        retry_first = turn_of_retries and self.claimer.retries_unknown
        if retry_first and (retry := self._claim_retry(timeout)):
            return retry
        if new := self.claim_new(batch, timeout):
            return new
        return None if retry_first else self._claim_retry(timeout)

    def claim_new(self, batch: int, timeout: timedelta) -> Claimed | None:
        delivery = self.claimer.claim(batch, timeout)
        if delivery is None:
            return None
        self.last_was_retry = False
        return Claimed(delivery)

    def claim_sent(self, row: Behind, batch: int, timeout: timedelta) -> Claimed | None:
        """Claim what was sent just now, see Claimer.claim_sent; None: ``claim()`` is to follow."""
        delivery = self.claimer.claim_sent(row, batch, timeout)
        if delivery is None:
            return None
        self.last_was_retry = False
        return Claimed(delivery)

    def _claim_retry(self, timeout: timedelta) -> Claimed | None:
        claimed = self.claimer.claim_retry(timeout)
        if claimed and not self.last_was_retry:
            self._retries_until = time.monotonic() + self.new_seconds
        self.last_was_retry = claimed is not None
        return Claimed(*claimed) if claimed else None

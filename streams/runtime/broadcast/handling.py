"""From a stretch of the log to a new position: read, call, move on. Shared with testing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streams.api import ReceivedMessage
from streams.consume.outcome.failure import Failure
from streams.errors import describe
from streams.models import Delivery
from streams.registry import Registration
from streams.runtime.broadcast.reader import Reader
from streams.runtime.handling import Handling, Outcome
from streams.subscriptions import Limits

logger = logging.getLogger("streams.broadcast")

# A stretch ends after so long, one call apart: other partitions want their turn, and the group may
# have been paused.
TURN_SECONDS = 1.0


class BroadcastHandling(Handling):
    """One stretch in the hands of the client's one thread.

    Its delivery is in no table: there is no lease to lose, and nothing to give back. A message
    whose handler raises is logged, and passed like the others.
    """

    def __init__(
        self,
        delivery: Delivery,
        registration: Registration,
        limits: Limits,
        reader: Reader,
        *,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(delivery, registration, limits, may_go_on=may_go_on)
        self._reader = reader
        self._rows: dict[int, Any] = {}
        self._began: float | None = None
        self._cut = False

    def run(self) -> Outcome:
        outcome = super().run()
        if self._cut and self.delivery.progress > self.delivery.last_offset:
            self._reader.note_absent(self.delivery.partition)
        return outcome

    def _begin(self) -> bool:
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began <= TURN_SECONDS and self._may_go_on()

    def _settle(self, progress: int, failures: Sequence[Failure]) -> None:
        span = range(self.delivery.progress, progress)
        passed = len(self._passed.intersection(span))
        self.outcome.passed += passed
        self.outcome.failed += len(failures)
        self.outcome.done += len(span) - passed - len(failures)
        for failure in failures:
            self.outcome.errors.append(failure.error)
            logger.error(
                "%s failed on %s/%d@%d, and goes on: %s",
                self.registration.name,
                self.registration.topic,
                self.delivery.partition.number,
                failure.offset,
                describe(failure.error),
                exc_info=failure.error,
            )
        last = self._received(self._rows[progress - 1])
        self._reader.move(self.delivery, progress, last.message_id, last.sequenced_at)
        self._settled = time.monotonic()

    def _release(self) -> None:
        self.outcome.released = self.delivery.last_offset + 1 - self.delivery.progress

    def _read(self) -> list[ReceivedMessage]:
        messages = super()._read()
        if not self._reader.sure:  # a connection was lost: this may be of another log
            self._cut = False
            self.delivery.last_offset = self.delivery.first_offset - 1
        return [m for m in messages if m.offset <= self.delivery.last_offset]

    def _fetch(self, statement: Mapping[str, str]) -> list[Any]:
        rows = super()._fetch(statement)
        self._rows = {row[0]: row for row in rows}
        return rows

    def _note_absent(self, absent: set[int]) -> None:
        """It ends before the first that is not there: the reader says what has become of it."""
        self._cut = True
        self.delivery.last_offset = min(absent) - 1

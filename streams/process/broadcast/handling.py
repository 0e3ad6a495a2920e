"""Handles a stretch of the log: reads, calls, moves the position. streams.testing shares it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from traceback import clear_frames

from streams.api import ReceivedMessage
from streams.consume.limits import Limits
from streams.consume.outcome import notices
from streams.consume.outcome.failure import Failure
from streams.consume.registry import Registration
from streams.database.clock import instant
from streams.deliver.calls import Calls
from streams.deliver.closing import Outcome
from streams.deliver.reading import chosen, in_calls
from streams.log.bodies import StoredMessage, stored_messages
from streams.log.rewinds import epoch_of
from streams.process.broadcast.reader import BroadcastReader, Stretch

logger = logging.getLogger("streams.broadcast")

# No call of a stretch begins later than this, in seconds: other partitions have their turn, and the
# group may have been paused.
TURN_SECONDS = 1.0


class BroadcastHandling(Calls):
    """The handling of one stretch in the client's one thread, settled in the client's file.

    There is no lease, and nothing to give back. A message whose handler raises is logged, and
    the position moves past it.
    """

    def __init__(
        self,
        stretch: Stretch,
        registration: Registration,
        limits: Limits,
        reader: BroadcastReader,
        *,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(registration, stretch, limits, reader.using)
        self.stretch = stretch
        self._reader = reader
        self._may_go_on = may_go_on
        # Of each offset: the id of its message, and its sequenced_at as it was read.
        self._read_as: dict[int, tuple[int, str | datetime | None]] = {}
        self._passed: set[int] = set()
        self._began: float | None = None

    def renew(self, left: timedelta) -> None:
        """Do nothing: a position on the disk has no lease."""

    def run(self) -> Outcome:
        """Read the messages, call the handler and move the position; return the outcome."""
        stretch = self.stretch
        rows, cut = self._read()
        partition = stretch.partition
        epoch = epoch_of(partition, stretch.first_offset, self._using)
        calls = in_calls(rows, self._size, self.registration, partition.number, 1, epoch)
        self.make(calls)
        if cut and stretch.progress > stretch.last_offset:
            self._reader.note_absent(stretch.partition)
        return self.outcome

    def _read(self) -> tuple[list[StoredMessage], bool]:
        """Return the messages before the first absent one, and whether one is absent."""
        stretch = self.stretch
        place = stretch.partition.pk, stretch.first_offset, stretch.last_offset + 1
        rows = stored_messages(*place, self._using)
        if not self._reader.sure:  # a connection was lost: the rows may be of another log
            stretch.last_offset = stretch.first_offset - 1
            return [], False
        self._read_as = {row.offset: (row.message_id, row.sequenced) for row in rows}
        absent = set(range(stretch.first_offset, stretch.last_offset + 1)) - set(self._read_as)
        if absent:
            stretch.last_offset = min(absent) - 1
        rows = [row for row in rows if row.offset <= stretch.last_offset]
        rows, self._passed = chosen(rows, self.registration.tags)
        return rows, bool(absent)

    def may_begin(self, messages: Sequence[ReceivedMessage]) -> bool:
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began <= TURN_SECONDS and self._may_go_on()

    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        span = range(self.stretch.progress, progress)
        passed = len(self._passed.intersection(span))
        self.outcome.passed += passed
        self.outcome.failed += len(failures)
        self.outcome.done += len(span) - passed - len(failures)
        for failure in failures:
            self.outcome.errors.append(failure.error)
            self._tell(failure)
            clear_frames(failure.error.__traceback__)
        message_id, sequenced = self._read_as[progress - 1]
        at = instant(sequenced) if sequenced else None
        self._reader.move(self.stretch, progress, message_id, at)
        if self._lines:
            outcomes = dict.fromkeys((failure.offset for failure in failures), "failed")
            self._lines.write(span, outcomes, self.registration)

    def _tell(self, failure: Failure) -> None:
        registration, number = self.registration, self.stretch.partition.number
        place = registration.topic, number, failure.offset, registration.group, 1
        tried, name = notices.Attempt(*place), registration.name
        notices.passed(tried, failure.error, name, self._using)

    def release(self) -> None:
        self.outcome.released = self.stretch.last_offset + 1 - self.stretch.progress

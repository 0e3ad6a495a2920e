"""Defines a turn of a broadcast consumer: take a stretch → handle → move the position."""

from __future__ import annotations

from streams.consume.limits import Limits
from streams.process.broadcast.handling import BroadcastHandling
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.pool import Wanted
from streams.process.turn import Turn

# Messages that are read at once for a quick handler, at most. To force a position to the disk takes
# milliseconds, longer than ten quick calls; so it is done once for many messages.
READ_AHEAD = 500


class BroadcastTurn(Turn):
    """The turns of a broadcast consumer, which has one thread: two would break the order."""

    _feed: RunningBroadcastGroup

    def _take(self, limits: Limits, wanted: Wanted) -> bool:
        stretch = self._feed.reader.take(self._size(limits))
        if stretch is None:
            return False
        feed, may_go_on = self._feed, self._runtime.may_go_on
        handling = BroadcastHandling(
            stretch, feed.registration, limits, feed.reader, may_go_on=may_go_on
        )
        self._run(handling)
        # Messages of a stretch that was released were read for nothing: read less next time.
        released = handling.outcome.released
        feed.ahead = 0 if released else min(READ_AHEAD, 2 * self._size(limits))
        return True

    def _size(self, limits: Limits) -> int:
        # A batch handler gets at most the batch that it asked for. For any other handler the size
        # only changes the speed.
        ahead = self._feed.ahead if self._feed.registration.batch is None else 0
        return max(limits.batch, ahead)

"""The thread of a broadcast consumer: take a stretch → handle → move the position."""

from __future__ import annotations

from streams.models import Delivery
from streams.runtime.broadcast.feed import BroadcastFeed
from streams.runtime.broadcast.handling import BroadcastHandling
from streams.runtime.worker import LOOK_SECONDS, Worker
from streams.subscriptions import Limits


class BroadcastWorker(Worker):
    """There is one for each broadcast consumer: a second one would break the order."""

    _feed: BroadcastFeed

    def _step(self) -> float:
        limits = self._feed.limits()
        if limits is None:
            return LOOK_SECONDS
        self._idle_limit.allow(limits.consume_timeout)
        with self._gate.together():
            if self._lifecycle.stopping:
                return LOOK_SECONDS
            delivery = self._feed.reader.take(limits.batch)
            if delivery is None:
                return LOOK_SECONDS
            self._handle(delivery, limits)
        return 0.0

    def _handle(self, delivery: Delivery, limits: Limits) -> None:
        handling = BroadcastHandling(
            delivery,
            self._feed.registration,
            limits,
            self._feed.reader,
            may_go_on=self._may_go_on,
        )
        self._held.add(handling)
        try:
            handling.run()
        finally:
            self._held.discard(handling)
            self._feed.add(handling.outcome)

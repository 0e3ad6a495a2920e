"""Lets an idle worker sequence and claim what was sent just now: quicker than by the poller.

Between the commit of a message and its handler there is one transaction then instead of two, and
one thread less to wake. The poller still does all that this leaves.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from datetime import timedelta

from django.db import connections

from streams.conf import settings
from streams.database.sql.dialect import fetch
from streams.database.sql.sequence import partitions_with_inbox
from streams.deliver.claim import Behind
from streams.deliver.own_cursors import OwnCursors
from streams.deliver.poller import FEW
from streams.deliver.turns import Claimed, Turns
from streams.log.sequencer import Pass
from streams.models import ConsumerGroup, Mode
from streams.process.pool import Pool, WorkerCall
from streams.process.running_group import RunningGroup

# A worker that has not claimed for so many seconds after it was called does something else.
PATIENCE_SECONDS = 0.05


class Arrivals:
    """The wake-ups of a process, and what its workers claim because of them.

    For each topic one worker at a time is called: what is sent meanwhile is claimed after it.
    """

    def __init__(self, pool: Pool, using: str) -> None:
        self._pool = pool
        self._using = using
        self._few = True  # the last pass has found few messages
        self._heard_at = -math.inf
        self._looks = False
        self._late: set[str] = set()  # topics of wake-ups during a look
        self._mutex = threading.Lock()
        self._called: dict[str, WorkerCall] = {}  # by topic
        self._cursors = OwnCursors(using)
        # Set before the threads start.
        self.wake_poller: Callable[[], None] = lambda: None

    @property
    def heard(self) -> bool:
        """Tell whether there was a wake-up in the last POLL_SECONDS."""
        return time.monotonic() < self._heard_at + settings().POLL_SECONDS

    @contextmanager
    def left_to_poller(self) -> Iterator[Callable[[int], None]]:
        """Call no worker in the block, a look of the poller; what is sent meanwhile comes after it.

        The block calls what is yielded with the number of messages that it has sequenced.
        """
        self._looks = True
        try:
            yield self._found
        finally:
            with self._mutex:
                self._looks, late, self._late = False, self._late, set()
            if late:
                self.wake(late)

    def _found(self, messages: int) -> None:
        self._few = messages <= FEW

    def wake(self, topics: Set[str]) -> None:
        """Call an idle worker for each of ``topics``, or else wake the poller; none are all."""
        self._heard_at = time.monotonic()
        called = [self._call(topic) for topic in topics if self._few]
        if not (called and all(called)):
            self.wake_poller()

    def _call(self, topic: str) -> bool:
        with self._mutex:
            if self._looks:
                self._late.add(topic)
                return True
            if call := self._called.get(topic):
                call.again = True
                return time.monotonic() < call.until
            call = WorkerCall(topic, time.monotonic() + PATIENCE_SECONDS)
            if any(self._pool.call(feed, call) for feed in self._feeds(topic) if _claims(feed)):
                self._called[topic] = call
            return topic in self._called

    def claim(
        self, call: WorkerCall, turns: Turns, batch: int, timeout: timedelta
    ) -> Claimed | None:
        """Claim what was sent, for which a worker was called, and wake who else has to do."""
        group = turns.claimer.group
        rows = self._with_inbox(group)
        claimed = turns.claim_sent(rows[0], batch, timeout) if rows else None
        done = turns.claimer.sent if rows else Pass()
        if done.sequenced:
            self._found(done.sequenced)
            for feed in self._feeds(call.topic):
                if feed.group != group:
                    self._pool.wake(feed)
        call.again = call.again or len(rows) > 1
        self._end(call)
        if done.goes_on_in is not None:
            self.wake_poller()
        return claimed

    def leave(self, call: WorkerCall) -> None:
        """End a call if its worker has not come to ``claim``: the poller is woken."""
        if self._called.get(call.topic) is call:
            self._end(call)
            self.wake_poller()

    def _end(self, call: WorkerCall) -> None:
        with self._mutex:
            self._called.pop(call.topic, None)
        if call.again:
            self.wake({call.topic})

    def _feeds(self, topic: str) -> Iterator[RunningGroup]:
        return (feed for feed in self._pool.feeds if feed.registration.topic == topic)

    def _with_inbox(self, group: ConsumerGroup) -> list[Behind]:
        """Return the cursors of the group whose partitions have something due, in any order."""
        cursors = self._cursors.of(group.pk)
        if len(cursors) <= 1:
            return cursors  # its pass looks itself
        ids = [partition_id for _id, partition_id, *_rest in cursors]
        statement = partitions_with_inbox(connections[self._using].vendor, ids)
        due = {partition_id for partition_id, _due_at in fetch(self._using, statement)}
        found = [row for row in cursors if row[1] in due]
        random.shuffle(found)
        return found


def _claims(feed: RunningGroup) -> bool:
    """Tell whether the group shares its messages: a broadcast consumer claims nothing."""
    return feed.registration.mode != Mode.BROADCAST

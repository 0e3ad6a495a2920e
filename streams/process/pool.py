"""Shares the worker threads of a process among its groups."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streams.process.running_group import RunningGroup

# Seconds after which an idle thread looks into a group by itself. The poller wakes the group when
# there is something; more frequent looks of many processes would cost the database too much.
LOOK_SECONDS = 300.0


@dataclass(eq=False)
class WorkerCall:
    """The call of a thread for what was sent to a topic just now, see Arrivals."""

    topic: str
    until: float  # of the monotonic clock: then a thread that has not claimed does something else
    again: bool = False  # more was sent meanwhile


class Wanted(NamedTuple):
    """A group that a thread is to serve, and what for."""

    feed: RunningGroup
    call: WorkerCall | None
    more: bool  # there may be something to claim


@dataclass(eq=False)
class Share:
    """What the pool knows of one group."""

    feed: RunningGroup
    woken: bool = True  # the first look needs no wake-up
    call: WorkerCall | None = None
    look_at: float = math.inf  # without a wake-up
    held_until: float = -math.inf  # its rate lets nothing begin before
    busy: int = 0  # how many threads serve it now


class Pool:
    """The choice of the group that a worker thread serves next: the one served the longest ago.

    Only a group that has been woken is served, by at most its ``threads`` at once. A group that has
    a thread does not get the last idle one, unless it is the only group: whatever its handlers wait
    for, there is a thread for the others.
    """

    def __init__(self, feeds: Sequence[RunningGroup]) -> None:
        self.feeds = feeds
        self._shares = {feed: Share(feed) for feed in feeds}
        self._order = deque(self._shares.values())
        self._condition = threading.Condition()
        self._idle = 0
        self._stopping = False

    def take(self) -> Wanted | None:
        """Return the group that the calling thread is to serve now; None if there is none.

        Give it back by ``give_back``.
        """
        with self._condition:
            self._idle += 1
            share = self._next()
            self._idle -= 1
            if share is None:
                return None
            now = time.monotonic()
            wanted = Wanted(share.feed, share.call, share.woken or share.look_at <= now)
            share.woken, share.call = False, None
            share.look_at = now + LOOK_SECONDS
            share.busy += 1
            self._order.remove(share)
            self._order.append(share)
            if self._idle and self._next():
                self._condition.notify()
            return wanted

    def give_back(self, feed: RunningGroup, *, again: bool) -> None:
        """End the turn of the calling thread, which asks for the next one or calls ``wake``.

        ``again``: whether the group may have more.
        """
        with self._condition:
            share = self._shares[feed]
            share.busy -= 1
            share.woken = share.woken or again

    def hold(self, feed: RunningGroup, until: float) -> None:
        """Let no thread serve the group before this instant of the monotonic clock."""
        with self._condition:
            self._shares[feed].held_until = until

    def wake(self, feed: RunningGroup) -> bool:
        """Note that a group has something to claim; return whether an idle thread is woken for it.

        Busy threads look by themselves when they are done.
        """
        with self._condition:
            share = self._shares[feed]
            share.woken = True
            may = self._may_have_one(share)
            if may:
                self._condition.notify()
            return may

    def call(self, feed: RunningGroup, call: WorkerCall) -> bool:
        """Let an idle thread claim what was sent just now; return False if there is none."""
        with self._condition:
            share = self._shares[feed]
            may = self._may_have_one(share)
            if may:
                share.call = call
                self._condition.notify()
            return may

    def has_idle(self, feed: RunningGroup) -> bool:
        """Tell whether an idle thread may serve the group."""
        with self._condition:
            return self._may_have_one(self._shares[feed])

    def wait(self, seconds: float) -> bool:
        """Rest until there is a group to serve, at most ``seconds``; return whether there is one.

        It is also True when the process stops.
        """
        until = time.monotonic() + seconds
        with self._condition:
            self._idle += 1
            try:
                while not (self._stopping or self._next()):
                    left = self._until_next_look(until) - time.monotonic()
                    if left <= 0:
                        return False
                    self._condition.wait(left)
                return True
            finally:
                self._idle -= 1

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def _next(self) -> Share | None:
        now = time.monotonic()
        for share in self._order:
            if (share.woken or share.call or share.look_at <= now) and self._may_have_one(share):
                return share
        return None

    def _may_have_one(self, share: Share) -> bool:
        """Tell whether one of the idle threads may serve the group."""
        if time.monotonic() < share.held_until:
            return False
        if share.busy >= share.feed.threads:
            return False
        left_for_others = 1 if share.busy and len(self._order) > 1 else 0
        return self._idle > left_for_others

    def _until_next_look(self, until: float) -> float:
        now = time.monotonic()
        looks = (one.look_at for one in self._order)
        ends = (one.held_until for one in self._order if one.woken)
        return min([until, *(at for at in (*looks, *ends) if at > now)])

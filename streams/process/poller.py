"""Moves the inbox into the log, and wakes the groups that have something to claim."""

from __future__ import annotations

import time

from streams.conf import FRESH_SECONDS, settings
from streams.deliver.due import Due, Places, partitions, what_is_due
from streams.log import ends
from streams.log.rewinds import compare
from streams.log.sequencer import Pass, sequence
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.steps.sequence import NOTE_EVERY, note_sequencing

# Seconds between two looks after something was found; doubled after each look that finds nothing,
# up to POLL_SECONDS.
QUICK_SECONDS = 0.02
# A step sequences for at most this many seconds, and goes on in the next one: in between, it wakes
# the groups that have something to claim.
SEQUENCE_SECONDS = 2.0
# After a wake-up the poller also looks for new partitions, but not again within these seconds.
REFRESH_SECONDS = 0.2


class Poller:
    """Looks, in each step, at all partitions and groups, and sequences if needed.

    Between two steps it waits until a wake-up comes or the next message, retry or cursor is
    due, at most POLL_SECONDS.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._pool = runtime.pool
        self._activity = runtime.activity
        self._lifecycle = runtime.lifecycle
        self._using = runtime.using
        self._drain = runtime.drain
        self._pause = QUICK_SECONDS
        self._note_at = 0.0
        self._places = Places([feed.group.pk for feed in runtime.feeds], [])
        self._refreshed = -FRESH_SECONDS
        self._woken = False

    def wake(self) -> None:
        """Note that something was sent, perhaps to a new topic. Other threads call this."""
        self._woken = True

    def step(self) -> float:
        started = time.monotonic()
        activity = self._activity.now()
        self._refresh(started)
        before = ends.seen(self._using)  # whatever is read after this is not lower
        outlook = what_is_due(self._places, self._using)
        compare(outlook.logs, before, self._using)
        done = sequence(self._using, outlook.inbox, until=started + SEQUENCE_SECONDS)
        self._note(started)
        ready = self._ready(outlook, done)
        # Busy workers look by themselves when they are done. Only when an idle one is woken is the
        # next look made sooner.
        woken = [feed for feed in ready if self._pool.wake(feed)]
        if done.goes_on_in is not None:
            return done.goes_on_in
        if done.sequenced or woken:
            self._pause = QUICK_SECONDS
        else:
            # A drain ends when nothing was found and no worker was busy before, during or after
            # the look, nor during the looks at the other databases of the process.
            if self._drain and not ready and self._activity.is_over(self._using, activity):
                self._lifecycle.stop()
            self._pause = min(self._pause * 2, settings().POLL_SECONDS)
        pause = self._pause
        if outlook.next_in is not None:
            pause = min(pause, max(outlook.next_in, QUICK_SECONDS))
        # A look over many rows takes longer: at most half of the time is spent on looking.
        return max(pause, time.monotonic() - started)

    def _refresh(self, now: float) -> None:
        patience = REFRESH_SECONDS if self._woken else FRESH_SECONDS
        if now >= self._refreshed + patience:
            self._woken = False
            self._places = Places(self._places.groups, partitions(self._using))
            self._refreshed = now

    def _ready(self, outlook: Due, done: Pass) -> list[RunningGroup]:
        """Return the feeds that have something to claim or to read."""
        grown = {
            topic for topic, partition in self._places.partitions if partition in done.partitions
        }
        return [
            feed
            for feed in self._pool.feeds
            if (
                feed.group.topic_id in grown
                or feed.group.pk in outlook.groups
                or feed.behind(outlook.ends)
            )
            and feed.limits()
        ]

    def _note(self, now: float) -> None:
        """Record, once in NOTE_EVERY, that the sequencer runs; ems_doctor reads it."""
        if now >= self._note_at:
            note_sequencing(self._using)
            self._note_at = now + NOTE_EVERY.total_seconds()

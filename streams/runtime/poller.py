"""The poller: moves the inbox into the log and wakes the groups that have something to claim."""

from __future__ import annotations

import time
from collections.abc import Sequence

from streams.claims import behind_groups, groups_with_due_retries
from streams.conf import settings
from streams.maintenance import NOTE_EVERY, note_sequencing
from streams.runtime.feed import Feed
from streams.runtime.lifecycle import Lifecycle
from streams.runtime.worker import Held
from streams.sequencer import sequence

# Another process holds a partition: look again so soon, in seconds.
BUSY_SECONDS = 0.01
# After something was found, polling starts over at this pace and slows down to POLL_SECONDS.
QUICK_SECONDS = 0.02


# Retries come due by the second, not by the millisecond: they are looked for no oftener.
RETRY_SECONDS = 0.2


class Poller:
    """One step is one pass of the sequencer and one look at all groups."""

    def __init__(
        self, feeds: Sequence[Feed], held: Held, lifecycle: Lifecycle, using: str, *, drain: bool
    ) -> None:
        self._feeds = feeds
        self._held = held
        self._lifecycle = lifecycle
        self._using = using
        self._drain = drain
        self._pause = QUICK_SECONDS
        self._note_at = 0.0
        self._look_for_retries_at = 0.0

    def step(self) -> float:
        started = time.monotonic()
        activity = self._held.activity()
        done = sequence(self._using)
        self._note(started)
        ready = self._ready(started)
        # Busy workers look by themselves when they are done: only idle ones are worth a hurry.
        woken = [feed for feed in ready if feed.wake()]
        if done.more:
            return 0.0
        if done.busy:
            return BUSY_SECONDS
        if done.sequenced or woken:
            self._pause = QUICK_SECONDS
        else:
            # Nothing was to be had, and no worker was at it before, after or in between.
            resting = not activity[0] and activity == self._held.activity()
            if self._drain and resting and not ready:
                self._lifecycle.stop()
            self._pause = min(self._pause * 2, settings().POLL_SECONDS)
        # A look costs more the more there is to step over: spend at most half the time on it.
        return max(self._pause, time.monotonic() - started)

    def _ready(self, now: float) -> list[Feed]:
        """The feeds that have something to claim."""
        groups = [feed.group.pk for feed in self._feeds]
        ready = behind_groups(groups, self._using)
        if self._drain or now >= self._look_for_retries_at:
            ready |= groups_with_due_retries(groups, self._using)
            self._look_for_retries_at = now + RETRY_SECONDS
        return [feed for feed in self._feeds if feed.group.pk in ready and feed.limits()]

    def _note(self, now: float) -> None:
        """Leave a sign of life for those who watch, once in NOTE_EVERY."""
        if now >= self._note_at:
            note_sequencing(self._using)
            self._note_at = now + NOTE_EVERY.total_seconds()

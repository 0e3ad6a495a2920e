"""Looks what is due on one database, moves the inbox into the log, and says when to look again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from streams.conf import FRESH_SECONDS, settings
from streams.database.binary_log import leave_bodies_out
from streams.database.retrying import retrying
from streams.deliver.due import Due, Places, partitions, what_is_due
from streams.log import ends
from streams.log.rewinds import compare
from streams.log.sequencer import Pass, sequence

# Seconds between two looks after something was found; doubled after each look that finds nothing,
# up to POLL_SECONDS.
QUICK_SECONDS = 0.02
# While a pass finds more than so many messages, the next wake-up leads to a look: it rests between
# its looks, so that more messages share a pass.
FEW = 4
# A look sequences for at most this many seconds, and the next one goes on: in between, who waits
# for a message is woken.
SEQUENCE_SECONDS = 2.0
# After a wake-up a look is also for new partitions, but not again within these seconds.
REFRESH_SECONDS = 0.2


@dataclass(frozen=True)
class Look:
    """What a look has found, and what it has moved into the log."""

    started: float  # of the monotonic clock
    due: Due
    done: Pass

    @property
    def moved(self) -> bool:
        """Tell whether the log has grown, or the next look may let it grow."""
        return bool(self.done.sequenced) or self.done.goes_on_in is not None


class Poller:
    """The looks of one thread at all partitions of a database, and at some groups.

    The thread has a connection of its own.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self.partitions: Sequence[tuple[int, int]] = ()  # as (topic id, partition id)
        self._refreshed = -FRESH_SECONDS
        self._pause = QUICK_SECONDS
        self._woken = False

    def wake(self) -> None:
        """Note that something was sent, perhaps to a new topic. Other threads call this."""
        self._woken = True

    def look(self, groups: Sequence[int]) -> Look:
        """Look once at all partitions and at ``groups``, and sequence if needed."""
        started = time.monotonic()
        if started >= self._refreshed + (REFRESH_SECONDS if self._woken else FRESH_SECONDS):
            self._woken = False
            self.partitions = partitions(self.using)
            self._refreshed = started
        before = ends.seen(self.using)  # whatever is read after this is not lower
        due = what_is_due(Places(groups, self.partitions), self.using)
        compare(due.logs, before, self.using)
        if due.inbox:
            retrying(leave_bodies_out, self.using, self.using)
        done = sequence(self.using, due.inbox, until=started + SEQUENCE_SECONDS)
        return Look(started, due, done)

    def pause(self, look: Look, *, woken: bool, told: bool = False) -> float:
        """Return how many seconds to wait for the next look; ``woken``: somebody was woken.

        ``told``: wake-ups say when something is sent, so looks that find something say nothing.
        That is until the next message, retry or cursor is due, at most POLL_SECONDS.
        """
        if look.done.goes_on_in is not None:
            return look.done.goes_on_in
        if (look.done.sequenced or woken) and not told:
            self._pause = QUICK_SECONDS
        else:
            self._pause = min(self._pause * 2, settings().POLL_SECONDS)
        pause = self._pause
        if look.due.next_in is not None:
            pause = min(pause, max(look.due.next_in, QUICK_SECONDS))
        # A look over many rows takes longer: at most half of the time is spent on looking.
        return max(pause, time.monotonic() - look.started)

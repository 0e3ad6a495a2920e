"""The poller: moves the inbox into the log and wakes the groups that have something to claim."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db.models import Exists, Min, OuterRef, Q

from streams.conf import settings
from streams.maintenance import NOTE_EVERY, note_sequencing
from streams.models import ConsumerGroup, Cursor, RetryMessage
from streams.runtime.feed import READABLE, Feed
from streams.runtime.lifecycle import Lifecycle
from streams.runtime.worker import Held
from streams.sequencer import sequence
from streams.transactions import retrying

# Another process holds a partition: look again so soon, in seconds.
BUSY_SECONDS = 0.01
# After something was found, polling starts over at this pace and slows down to POLL_SECONDS.
QUICK_SECONDS = 0.02


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

    def step(self) -> float:
        started = time.monotonic()
        activity = self._held.activity()
        done = sequence(self._using)
        self._note(started)
        ready = ready_groups([feed.group.pk for feed in self._feeds], self._using)
        for feed in self._feeds:
            if feed.group.pk in ready:
                feed.wake()
        if done.more:
            return 0.0
        if done.busy:
            return BUSY_SECONDS
        if done.sequenced or ready:
            self._pause = QUICK_SECONDS
        else:
            # Nothing was to be had, and no worker was at it before, after or in between.
            if self._drain and activity == self._held.activity() and not activity[0]:
                self._lifecycle.stop()
            self._pause = min(self._pause * 2, settings().POLL_SECONDS)
        # A look costs more the more there is to step over: spend at most half the time on it.
        return max(self._pause, time.monotonic() - started)

    def _note(self, now: float) -> None:
        """Leave a sign of life for those who watch, once in NOTE_EVERY."""
        if now >= self._note_at:
            note_sequencing(self._using)
            self._note_at = now + NOTE_EVERY.total_seconds()


def ready_groups(group_ids: Sequence[int], using: str) -> set[int]:
    """The groups, of these, that have something to claim now."""
    behind = Cursor.objects.using(using).behind().filter(group=OuterRef("pk"))
    # The MIN lets the server jump from group to group in ems_retry_due; as EXISTS it would step
    # over all retries that wait for their time.
    waiting = RetryMessage.objects.using(using).due().filter(group__in=group_ids)
    due = waiting.values("group").annotate(first=Min("due_at")).values_list("group", "first")
    groups = ConsumerGroup.objects.using(using).filter(
        pk__in=group_ids, paused=False, topic__access__in=READABLE
    )

    def look() -> set[int]:
        with_retries = [group for group, _first in due]
        ready = groups.filter(Exists(behind) | Q(pk__in=with_retries))
        return set(ready.values_list("pk", flat=True))

    return retrying(look, using)

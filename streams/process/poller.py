"""Wakes the groups of a process that have something to claim, shares it, and ends a drain."""

from __future__ import annotations

from streams.deliver.poller import Look, Poller
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.steps.sequence import NOTE_EVERY, note_sequencing


class ProcessPoller(Poller):
    """Looks, in each step, at the groups of the process. It waits until a wake-up in between."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.using)
        self._pool = runtime.pool
        self._held = runtime.held
        self._activity = runtime.activity
        self._lifecycle = runtime.lifecycle
        self._drain = runtime.drain
        self._arrivals = runtime.arrivals
        self._groups = [feed.group.pk for feed in runtime.feeds]
        self._note_at = 0.0

    def step(self) -> float:
        for calls in self._held.all():
            calls.share()  # what is given back is found by the look
        activity = self._activity.now()
        with self._arrivals.left_to_poller() as found:
            look = self.look(self._groups)
            found(look.done.sequenced)
        self._note(look.started)
        ready = self._ready(look)
        # Busy workers look by themselves when they are done. Only when an idle one is woken is the
        # next look made sooner. A group that rests is not done: a drain waits for it.
        woken = [feed for feed in ready if not feed.rest.lasts and self._pool.wake(feed)]
        # A drain ends when nothing was found and no worker was busy before, during or after the
        # look, nor during the looks at the other databases of the process.
        nothing_left = self._drain and not (ready or look.moved)
        if nothing_left and self._activity.is_over(self.using, activity):
            self._lifecycle.stop()
        return self.pause(look, woken=bool(woken), told=self._arrivals.heard)

    def _ready(self, look: Look) -> list[RunningGroup]:
        """Return the feeds that have something to claim or to read."""
        grown = {topic for topic, partition in self.partitions if partition in look.done.partitions}
        return [
            feed
            for feed in self._pool.feeds
            if (
                feed.group.topic_id in grown
                or feed.group.pk in look.due.groups
                or feed.behind(look.due.ends)
            )
            and feed.limits()
        ]

    def _note(self, now: float) -> None:
        """Record, once in NOTE_EVERY, that the sequencer runs; ems_doctor reads it."""
        if now >= self._note_at:
            note_sequencing(self.using)
            self._note_at = now + NOTE_EVERY.total_seconds()

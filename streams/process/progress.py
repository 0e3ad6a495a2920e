"""Says how the groups of this process do: at the start, once a minute, and at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from streams.consume.outcome.flood import flood
from streams.logs import event
from streams.process.running_group import RunningGroup, Totals

logger = logging.getLogger("streams.supervisor")

EVERY_SECONDS = 60.0


class Progress:
    """The records about the groups, each with the counts of this process."""

    def __init__(self, feeds: Sequence[RunningGroup]) -> None:
        self._feeds = feeds
        self._began = time.monotonic()
        self._before = [Totals()] * len(feeds)
        self._was_idle = [True] * len(feeds)

    def say_start(self) -> None:
        self._began = time.monotonic()
        for feed in self._feeds:
            place = feed.place()
            paused = feed.limits() is None
            logger.info(
                "%s, at %s, %s behind%s",
                *(feed.describe(), place, f"{place.behind:,}"),
                ", paused" if paused else "",
                extra=event(
                    "group.started",
                    topic=feed.registration.topic,
                    group=feed.registration.group,
                    offsets=place.offsets,
                    behind=place.behind,
                    paused=paused,
                ),
            )

    def step(self) -> float:
        """Write a record a group if EVERY_SECONDS have passed since the last ones.

        Of a group with nothing to do only the first record that says so is written: many idle
        groups would hide the others.
        """
        flood.say_withheld()
        now = time.monotonic()
        seconds = now - self._began
        if seconds < EVERY_SECONDS:
            return EVERY_SECONDS - seconds
        for number, feed in enumerate(self._feeds):
            totals = feed.totals
            done = totals - self._before[number]
            behind = feed.place().behind
            was_idle, is_idle = self._was_idle[number], done == Totals() and not behind
            self._was_idle[number] = is_idle
            if was_idle and is_idle:
                continue
            logger.info(
                "%s: %.1f messages a second, %d failed, %d dead, %s behind",
                *(feed.name, done.handled / seconds, done.failed, done.dead, f"{behind:,}"),
                extra=event(
                    "group.rate",
                    topic=feed.registration.topic,
                    group=feed.registration.group,
                    seconds=round(seconds, 3),
                    handled=done.handled,
                    failed=done.failed,
                    dead=done.dead,
                    behind=behind,
                ),
            )
            self._before[number] = totals
        self._began = now
        return EVERY_SECONDS

    def say_end(self) -> None:
        flood.say_withheld(at_once=True)
        for feed in self._feeds:
            totals = feed.totals
            logger.info(
                "%s",
                feed.report(),
                extra=event(
                    "group.counted",
                    topic=feed.registration.topic,
                    group=feed.registration.group,
                    handled=totals.handled,
                    failed=totals.failed,
                    dead=totals.dead,
                    missing=totals.missing,
                ),
            )

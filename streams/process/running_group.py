"""Defines the feed: one registered consumer in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from streams.conf import FRESH_SECONDS
from streams.consume.limits import Limits, Overrides, limits, threads
from streams.consume.registry import Registration
from streams.consume.subscription import subscribe
from streams.database.retrying import retrying
from streams.deliver.closing import Outcome
from streams.deliver.cursor_locks import CursorLocks
from streams.deliver.pace import Pace
from streams.models import Consumer, ConsumerGroup, Cursor
from streams.process.shared.gate import Gate
from streams.process.shared.rest import Rest
from streams.sharding import is_sharded
from streams.telemetry import handled

# The most partitions of a group that are named in a line.
SHOWN = 4


@dataclass(frozen=True)
class Totals:
    """What this process has done with the messages of a group; `failed` includes `dead`."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    missing: int = 0
    passed: int = 0

    @property
    def handled(self) -> int:
        return self.done + self.failed

    def __add__(self, outcome: Outcome) -> Totals:
        return self._with(1, outcome)

    def __sub__(self, other: Totals) -> Totals:
        return self._with(-1, other)

    def _with(self, sign: int, other: Outcome | Totals) -> Totals:
        return Totals(
            *(getattr(self, f.name) + sign * getattr(other, f.name) for f in fields(self))
        )


@dataclass(frozen=True)
class NextOffsets:
    """The next offsets of a group by partition number, and how many messages it is behind."""

    offsets: dict[int, int]
    behind: int

    def __str__(self) -> str:
        shown = [f"{number}@{offset}" for number, offset in sorted(self.offsets.items())]
        more = f" and {len(shown) - SHOWN:,} more" if len(shown) > SHOWN else ""
        return (", ".join(shown[:SHOWN]) or "–") + more


class RunningGroup:
    """A group as its workers know it; what it says is at most FRESH_SECONDS old."""

    def __init__(self, registration: Registration, using: str, overrides: Overrides) -> None:
        self.registration = registration
        self.group = subscribe(registration, using, overrides.start)
        # Of all threads.
        self.pace = Pace(single=registration.batch is None)
        self.locks = CursorLocks()
        self.threads = threads(registration, using, overrides)
        self.gate = Gate()
        self.rest = Rest(self.group, registration, using)
        self._using = using
        self._overrides = overrides
        self._fresh_until = 0.0
        self._limits: Limits | None = None
        self._counting = threading.Lock()
        self.totals = Totals()

    @property
    def name(self) -> str:
        name = f"{self.registration.group} on {self.registration.topic}"
        return f"{name} ({self._using})" if is_sharded() else name

    def limits(self) -> Limits | None:
        """Return the limits in force; None while the group is paused or its topic unreadable."""
        if time.monotonic() >= self._fresh_until:
            groups = ConsumerGroup.objects.using(self._using).select_related("topic")
            group = retrying(groups.filter(pk=self.group.pk).first, self._using)
            readable = group and not group.paused and group.topic.readable
            # One assignment: other threads read it, and an intermediate None would make them wait.
            self._limits = self._counted(group) if group and readable else None
            self._fresh_until = time.monotonic() + FRESH_SECONDS
        return self._limits

    def behind(self, ends: Mapping[int, Mapping[int, int]]) -> bool:
        """Tell whether there is something to read that no cursor shows (see process/broadcast).

        ``ends``: topic → partition → next offset.
        """
        return False

    def consume_timeout(self) -> timedelta:
        """Return the consume_timeout of the calls that may be running now."""
        return (self._limits or self._in_force(self.group)).consume_timeout

    def _in_force(self, group: ConsumerGroup) -> Limits:
        return limits(group, self.registration, self._using, self._overrides)

    def _counted(self, group: ConsumerGroup) -> Limits:
        """Return the limits with the worker threads of the group; other processes have as many."""
        live = Consumer.objects.using(self._using).live().filter(group=group.pk)
        processes = max(1, retrying(live.count, self._using))
        return replace(self._in_force(group), workers=processes * self.threads)

    def describe(self) -> str:
        lanes = f" of {self.registration.lanes} lanes" if self.registration.lanes > 1 else ""
        return f"{self.name}: {self.registration.name}, up to {self.threads} threads{lanes}"

    def add(self, outcome: Outcome) -> None:
        """Count what a worker has done with one delivery."""
        with self._counting:
            self.totals += outcome
        handled(self.registration, outcome)

    def place(self) -> NextOffsets:
        """Read where the group is now, without its replays."""
        cursors = Cursor.objects.using(self._using).filter(group=self.group.pk, replay=0)
        columns = cursors.values_list("partition__number", "next_offset", "partition__next_offset")
        rows = retrying(list, self._using, columns)
        offsets = {number: offset for number, offset, _end in rows}
        return NextOffsets(offsets, sum(max(0, end - offset) for _number, offset, end in rows))

    def report(self) -> str:
        """Return a line that says how many messages this process has handled."""
        totals = self.totals
        return (
            f"{self.name}: {totals.done:,} handled, {totals.failed:,} failed"
            f" ({totals.dead:,} dead), {totals.missing:,} missing,"
            f" {totals.passed:,} without its tags"
        )

"""Enqueues tasks by the clock: each tick once, whoever notices it, and without a leader.

The row of a schedule says which tick was the last one. It is moved in the transaction that sends
the task, and the message has a dedup key besides. A tick is sent some seconds before its time, as a
delayed message: so it does not matter when a step runs. Of the ticks that nobody has noticed, as
while all processes were stopped, only the newest one is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from streams.contrib.tasks.cron import Cron, Every
from streams.contrib.tasks.envelope import imported, shown
from streams.contrib.tasks.models import TaskSchedule
from streams.contrib.tasks.names import topic_of
from streams.contrib.tasks.queues import backends
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.sharding import alias_of
from streams.steps.turns import is_turn

logger = logging.getLogger("streams.maintenance")

STEP = "task-schedules"
EVERY = timedelta(seconds=1)
# How long before its time a tick is sent. Steps run every five seconds.
AHEAD = timedelta(seconds=10)


@dataclass(frozen=True)
class Scheduled:
    """A schedule of the settings, of one backend."""

    name: str
    backend: Any
    when: Cron | Every
    path: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)

    def task(self) -> Any:
        return imported(self.path).using(backend=self.backend.alias)

    def enqueue(self, tick: datetime) -> Any:
        """Enqueue the task of a tick, once."""
        task = self.task().using(run_after=shown(tick))
        key = f"schedule:{self.name}:{tick.isoformat()}"
        return self.backend.enqueue_keyed(task, self.args, self.kwargs, key)

    def enqueue_now(self, mark: str) -> Any:
        """Enqueue the task at once, once for each ``mark``."""
        key = f"schedule:{self.name}:by hand:{mark}"
        return self.backend.enqueue_keyed(self.task(), self.args, self.kwargs, key)

    def ticks(self, last: datetime, now: datetime) -> Iterator[datetime]:
        """Yield what is to be sent now: the newest tick of the past, and those that come soon."""
        tick = self.when.newest(now)
        if tick > last:
            yield tick
        tick = self.when.after(max(tick, last))
        while tick <= now + AHEAD:
            yield tick
            tick = self.when.after(tick)


def schedules() -> Iterator[Scheduled]:
    """Yield the schedules of all backends."""
    for backend in backends():
        for name, given in backend.known.schedules.items():
            yield Scheduled(name, backend, **given)


def schedule_of(name: str) -> Scheduled | None:
    """Return the schedule of this name, if it is in the settings of this process."""
    return next((one for one in schedules() if one.name == name), None)


def enqueue_due_if_due(using: str) -> int:
    return enqueue_due(using) if is_turn(STEP, EVERY, using) else 0


def enqueue_due(using: str) -> int:
    """Send the ticks that are due, and those that are so soon; return how many."""
    sent, now, known = 0, None, {}
    for one in schedules():
        try:
            if alias_of(topic_of(one.task().queue_name)) != using:
                continue
            if now is None:
                now = retrying(database_now, using, using)
                rows = TaskSchedule.objects.using(using)
                known = {row.name: row for row in retrying(list, using, rows.all())}
            # A new schedule has missed nothing.
            row = known.get(one.name) or _created(one.name, now, using)
            for tick in one.ticks(row.last_tick_at, now):
                sent += retrying(_send, using, one, tick, using)
        except Exception as error:  # a task that cannot be imported must not stop the others
            logger.exception(
                "The schedule %s fails: %s",
                *(one.name, error),
                extra=event("schedule.failed", schedule=one.name, database=using),
            )
    return sent


def _created(name: str, now: datetime, using: str) -> TaskSchedule:
    rows = TaskSchedule.objects.using(using)
    defaults = {"last_tick_at": now}
    return retrying(lambda: rows.get_or_create(name=name, defaults=defaults)[0], using)


def _send(one: Scheduled, tick: datetime, using: str) -> bool:
    with own_transaction(using):
        rows = TaskSchedule.objects.using(using).filter(name=one.name)
        if not rows.filter(last_tick_at__lt=tick).update(last_tick_at=tick):
            return False  # another process has noticed it
        if not rows.running().exists():
            return False
        one.enqueue(tick)
    return True

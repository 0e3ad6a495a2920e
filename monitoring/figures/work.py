"""Computes the figures of background work: by queue, by task, what runs and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from monitoring.figures.group import GroupFigures
from monitoring.live.limits import LISTED_AT_MOST
from streams.models import ConsumerGroup
from streams.observe.work import (
    LINES,
    Door,
    FailedTasks,
    RunningTask,
    doors,
    failed,
    running,
    waiting_next,
)


@dataclass(frozen=True)
class WaitingTasks:
    """How many of the tasks that come next in a queue have this name."""

    queue: str
    task: str
    number: int
    of: int


@dataclass(frozen=True)
class DoorFigures:
    """What comes in by one door."""

    title: str
    prefix: str
    queues: Sequence[GroupFigures]
    queues_in_all: int
    waiting: int | None
    retries: int
    dead: int
    running: Sequence[RunningTask]
    running_in_all: str  # with a plus, if there may be more
    next_tasks: Sequence[WaitingTasks]
    failed: Sequence[FailedTasks]
    failed_in_all: int
    has_rows: bool

    def queue_of(self, group: GroupFigures) -> str:
        return group.topic.removeprefix(self.prefix)


def work_figures(groups: Sequence[GroupFigures], now: datetime, using: str) -> list[DoorFigures]:
    """Return the figures of each door; ``groups`` are those of all topics, the worst first."""
    return [_of(door, groups, now, using) for door in doors()]


def _of(door: Door, groups: Sequence[GroupFigures], now: datetime, using: str) -> DoorFigures:
    mine = [one for one in groups if one.name == door.group and one.topic.startswith(door.prefix)]
    shown = mine[:LISTED_AT_MOST]
    rows = ConsumerGroup.objects.using(using).select_related("topic")
    known = rows.in_bulk([one.pk for one in shown])
    of_door = [known[one.pk] for one in shown if one.pk in known]
    errors = failed(door, (known[one.pk] for one in shown if one.dead and one.pk in known), using)
    busiest = sorted(shown, key=lambda one: -(one.behind or 0))[:LINES]
    next_ = waiting_next((known[one.pk] for one in busiest if one.behind), using)
    tasks = [
        WaitingTasks(door.queue_of(topic), tag, *found) for (topic, tag), found in next_.items()
    ]
    unknown = any(one.behind is None for one in mine)
    now_running = running(door, of_door, now, using)
    number = len(now_running)
    return DoorFigures(
        title=str(door.title),
        prefix=door.prefix,
        queues=shown,
        queues_in_all=len(mine),
        waiting=None if unknown else sum(one.behind or 0 for one in mine),
        retries=sum(one.waiting for one in mine),
        dead=sum(one.dead for one in mine),
        running=now_running,
        running_in_all=f"{number}+" if number >= LINES else str(number),
        next_tasks=sorted(tasks, key=lambda one: -one.number)[:LINES],
        failed=errors[:LINES],
        failed_in_all=len(errors),
        has_rows=door.rows is not None,
    )


def is_used() -> bool:
    """Tell whether an app of the project brings work in."""
    return bool(doors())

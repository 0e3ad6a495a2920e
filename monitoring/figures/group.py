"""Computes the figures of a group: its lag, its rates, and when its backlog will be gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from monitoring.figures.condition import LEVELS, ORDER, Condition, condition
from monitoring.figures.site import Site
from monitoring.figures.speed import CLEAR_OVER, Clearing, clearing, speed
from monitoring.live.limits import known_done
from streams.log.lag import Lag


@dataclass(frozen=True)
class GroupFigures:
    """Holds what a row about a group shows. What is unknown is None."""

    pk: int
    name: str
    topic: str
    topic_pk: int
    kind: str  # cluster, ordered or broadcast
    condition: Condition
    behind: int | None
    open: int
    waiting: int  # retries, up to 10,000
    dead: int  # up to 10,000
    consumers: int
    age: timedelta | None
    blocked: int
    published: float | None  # messages a second that come into the topic
    consumed: float | None  # messages a second that the group finishes
    clearing: Clearing
    behind_series: Sequence[float | None]

    @property
    def level(self) -> str:
        return LEVELS[self.condition]

    @property
    def in_trouble(self) -> bool:
        """Tell whether somebody should look: messages wait for no good reason, or letters do."""
        return self.level == "bad" or bool(self.dead)

    @property
    def trouble(self) -> tuple[int, float, int, int]:
        """Return a key that sorts the groups by their need for action, the worst first."""
        age = self.age.total_seconds() if self.age else 0
        waiting = (self.behind or 0) + self.waiting
        return ORDER.index(self.condition), -age, -waiting, -self.dead


def group_figures(site: Site) -> list[GroupFigures]:
    """Return the figures of the groups of ``site``, in the order of their need for action."""
    return sorted((_of(lag, site) for lag in site.lags), key=lambda one: (one.trouble, one.name))


def _of(lag: Lag, site: Site) -> GroupFigures:
    group: Any = lag.group
    series = site.readers.get(group.pk)
    finished = known_done(lag)
    done = None if finished is None else (site.now, finished)
    readings = series.recent_since(lag.reset_at) if series else []
    # The topic's rate and the group's over the same time, for the time to clear.
    into = _into(site, group.topic_id, CLEAR_OVER)
    out = speed(readings, done, CLEAR_OVER)
    future = clearing(lag.behind, into, out)
    return GroupFigures(
        pk=group.pk,
        name=group.name,
        topic=group.topic.name,
        topic_pk=group.topic_id,
        kind=group.kind,
        condition=condition(lag, future, into, out),
        behind=lag.behind,
        open=lag.open,
        waiting=lag.waiting,
        dead=lag.dead,
        consumers=lag.consumers,
        age=lag.age,
        blocked=lag.blocked,
        published=into,
        consumed=out,
        clearing=future,
        behind_series=series.behind if series else [],
    )


def _into(site: Site, topic: int, over: timedelta) -> float | None:
    known = [
        rate
        for one in site.of_topic(topic)
        if (series := site.log.get(one.pk))
        and (rate := speed(series.recent, (site.now, one.next_offset), over)) is not None
    ]
    return sum(known) if known else None

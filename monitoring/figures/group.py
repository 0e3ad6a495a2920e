"""Shows how a group stands: its lag, its rates, and why it needs somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monitoring.figures.site import Site
from streams.log.condition import Clearing, Condition, Standing, Trouble


@dataclass(frozen=True)
class NeedFigures:
    """Why a group needs somebody, and since when; None is unknown."""

    trouble: Trouble
    since: datetime | None
    told: str  # how long it has lasted, and what else there is to say


@dataclass(frozen=True)
class GroupFigures:
    """What a row about a group shows. What is unknown is None."""

    pk: int
    name: str
    topic: str
    topic_pk: int
    kind: str  # cluster, ordered or broadcast
    kind_text: str
    condition: Condition
    needs: Sequence[NeedFigures]  # the worst first; empty: it needs nobody
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
    level: str  # of the condition


def group_figures(site: Site) -> list[GroupFigures]:
    """Return the figures of the groups of ``site``, in the order of their need for action."""
    return [_of(one, site) for one in site.standings]


def _of(one: Standing, site: Site) -> GroupFigures:
    lag, series = one.lag, site.readers.get(one.lag.group.pk)
    group: Any = lag.group
    return GroupFigures(
        pk=group.pk,
        name=group.name,
        topic=group.topic.name,
        topic_pk=group.topic_id,
        kind=group.kind,
        kind_text=group.kind_text,
        condition=one.condition,
        needs=[NeedFigures(need.trouble, need.since, one.told(need)) for need in one.needs],
        behind=lag.behind,
        open=lag.open,
        waiting=lag.waiting,
        dead=lag.dead,
        consumers=lag.consumers,
        age=lag.age,
        blocked=lag.blocked,
        published=one.known.published,
        consumed=one.known.consumed,
        clearing=one.clearing,
        behind_series=series.behind if series else [],
        level=one.level,
    )

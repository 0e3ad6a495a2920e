"""Computes the history of the backlogs of all groups: hours of a week, days of a longer range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from monitoring.models import BacklogLevel, Grain, GroupSample
from monitoring.sample.grain import GRAINS, HOURLY, floor
from monitoring.sample.series import Values
from streams.log.condition import OLD
from streams.log.lag import Lag

WEEK = timedelta(days=7)


@dataclass(frozen=True)
class GroupHistory:
    """How far behind a group was in each period, at most, and how it is now.

    What is unknown is None. ``late`` of ``known`` periods had a message older than OLD.
    """

    pk: int
    name: str
    topic: str
    kind: str
    kind_text: str
    behind: int | None
    age: timedelta | None
    most: int | None
    most_at: datetime | None
    oldest: timedelta | None
    oldest_at: datetime | None
    late: int
    known: int
    behind_series: Values
    age_series: Values

    @property
    def label(self) -> str:
        return _("%(group)s on %(topic)s") % {"group": self.name, "topic": self.topic}

    @property
    def level(self) -> str:
        """Return how much it needs somebody, by how it is now."""
        return "bad" if self.age is not None and self.age > OLD else ""


@dataclass(frozen=True)
class History:
    """The groups, those that were late for longest first, over the same periods."""

    grain: Grain
    starts: Sequence[datetime]
    groups: Sequence[GroupHistory]
    until: datetime | None  # the last period that Spark has added up; None: it has added up none

    @property
    def late(self) -> Values:
        """Return how many groups were late in each period; None where nothing is known."""
        found: Values = [None] * len(self.starts)
        for one in self.groups:
            for place, (behind, age) in enumerate(
                zip(one.behind_series, one.age_series, strict=True)
            ):
                if behind is not None or age is not None:
                    found[place] = (found[place] or 0) + _is_late(age)
        return found


def history(using: str, now: datetime, length: timedelta, lags: Sequence[Lag]) -> History:
    """Return the history of so long before ``now`` of the groups of ``lags``. Two statements."""
    grain = Grain.HOUR if length <= WEEK else Grain.DAY
    period = timedelta(minutes=grain)
    last = floor(now, grain)
    starts = [last - n * period for n in range(length // period, -1, -1)]
    places = {start: place for place, start in enumerate(starts)}
    groups: dict[int, tuple[Values, Values]] = {
        lag.group.pk: ([None] * len(starts), [None] * len(starts)) for lag in lags
    }
    levels = BacklogLevel.objects.using(using).filter(grain=grain, start__gte=starts[0])
    until = _note(groups, places, levels.values_list("group", "start", "behind", "age_seconds"))
    _note(groups, places, _samples(using, grain, until or starts[0]))
    found = [_of(lag, starts, *groups[lag.group.pk]) for lag in lags]
    return History(grain, starts, sorted(found, key=_order), until)


def _samples(using: str, grain: Grain, since: datetime) -> Iterable[Sequence[Any]]:
    """Return the samples that Spark has not added up: the first ones of hours, or of six hours."""
    grains = [one for one in GRAINS if one >= (HOURLY if grain == Grain.HOUR else GRAINS[0])]
    rows = GroupSample.objects.using(using).filter(grain__in=grains, minute__gte=since)
    for group, at, *values in rows.values_list("group", "minute", "behind", "age_seconds"):
        yield group, floor(at, grain), *values


def _note(
    groups: Mapping[int, tuple[Values, Values]],
    places: Mapping[datetime, int],
    rows: Iterable[Sequence[Any]],
) -> datetime | None:
    """Keep the highest values of each period; return the newest period that has any."""
    newest = None
    for group, start, *values in rows:
        if group not in groups or start not in places:
            continue
        newest = start if newest is None else max(newest, start)
        for series, value in zip(groups[group], values, strict=True):
            old = series[places[start]]
            if value is not None and (old is None or value > old):
                series[places[start]] = value
    return newest


def _of(lag: Lag, starts: Sequence[datetime], behind: Values, age: Values) -> GroupHistory:
    group: Any = lag.group
    most, most_at = _highest(behind, starts)
    oldest, oldest_at = _highest(age, starts)
    return GroupHistory(
        pk=group.pk,
        name=group.name,
        topic=group.topic.name,
        kind=group.kind,
        kind_text=group.kind_text,
        behind=lag.behind,
        age=lag.age,
        most=None if most is None else int(most),
        most_at=most_at,
        oldest=None if oldest is None else timedelta(seconds=oldest),
        oldest_at=oldest_at,
        late=sum(map(_is_late, age)),
        known=sum(value is not None for value in behind),
        behind_series=behind,
        age_series=age,
    )


def _highest(
    values: Values, starts: Sequence[datetime]
) -> tuple[float, datetime] | tuple[None, None]:
    known = [(value, at) for value, at in zip(values, starts, strict=True) if value is not None]
    # Of several the newest one; nothing is not the highest of anything.
    return max(known, default=(None, None))


def _is_late(age: float | None) -> bool:
    return age is not None and age > OLD.total_seconds()


def _order(one: GroupHistory) -> Any:
    """Those that are late now first; then by how long they were, the oldest and the most."""
    nothing = timedelta(0)
    return (
        not one.level,
        -one.late,
        -max(one.oldest or nothing, one.age or nothing),
        -max(one.most or 0, one.behind or 0),
        *(one.name, one.pk),
    )

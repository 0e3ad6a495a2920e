"""Tells what is known of groups beside their lag: rates as they are now, and alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import Error, connections

from monitoring.alarms.unresolved import unresolved
from monitoring.figures.speed import speed
from monitoring.live.limits import known_done
from monitoring.models import Alarm, AlarmState, Metric
from monitoring.sample.periods import Periods
from monitoring.sample.series import RECENT, GroupSeries, LogSeries, group_series, log_series
from streams.database.retrying import tables_missing
from streams.log.condition import Known, may_lag
from streams.log.lag import Lag

# The next offset of each partition of each topic.
Ends = Mapping[int, Mapping[int, int]]


@dataclass(frozen=True)
class Rates:
    """The messages a second that come in and that are done: computed once, for all pages."""

    now: datetime
    ends: Ends
    log: Mapping[int, LogSeries]
    readers: Mapping[int, GroupSeries]

    def published(self, topic: int) -> float | None:
        """Return what comes into a topic; unknown without samples."""
        known = [
            rate
            for partition, end in self.ends.get(topic, {}).items()
            if (rate := self.into(partition, end)) is not None
        ]
        return sum(known) if known else None

    def into(self, partition: int, end: int) -> float | None:
        """Return what comes into a partition that ends here now."""
        series = self.log.get(partition)
        return speed(series.recent, (self.now, end)) if series else None

    def consumed(self, lag: Lag) -> float | None:
        """Return what a group finishes."""
        series, done = self.readers.get(lag.group.pk), known_done(lag)
        if series is None or done is None:
            return None
        return speed(series.recent_since(lag.reset_at), (self.now, done))


def known(lags: Iterable[Lag], rates: Rates, alarms: Iterable[Alarm]) -> dict[int, Known]:
    """Return what is known of the group of each lag."""
    firing: dict[tuple[str, str], Alarm] = {}
    beyond: dict[tuple[str, str], datetime] = {}
    for alarm in sorted(alarms, key=lambda one: one.since):
        place = alarm.topic, alarm.group
        if alarm.state == AlarmState.FIRING:
            firing.setdefault(place, alarm)
        elif alarm.metric in (Metric.LAG, Metric.LAG_AGE):
            beyond.setdefault(place, alarm.since)
    found = {}
    for lag in lags:
        place = lag.group.topic.name, lag.group.name
        fires = firing.get(place)
        found[lag.group.pk] = Known(
            published=rates.published(lag.group.topic_id),
            consumed=rates.consumed(lag),
            alarm=fires.label if fires else None,
            alarm_at=fires.since if fires else None,
            beyond_at=beyond.get(place),
        )
    return found


def known_now(using: str, lags: Sequence[Lag], now: datetime) -> dict[int, Known]:
    """Return the same for whoever has only lags; rates only of those whose condition needs them.

    Nothing where there are no tables yet.
    """
    old = [lag for lag in lags if may_lag(lag)]
    ends: dict[int, dict[int, int]] = {lag.group.topic_id: {} for lag in old}
    for lag in old:
        ends[lag.group.topic_id] |= {place.partition: place.end for place in lag.places}
    periods = Periods.until(now, RECENT)
    log, readers = {}, {}
    try:
        if old:
            log = log_series(using, periods, [pk for of_topic in ends.values() for pk in of_topic])
            readers = group_series(using, periods, [lag.group.pk for lag in old])
    except Error as error:
        if not tables_missing(error):
            raise
        connections[using].close_if_unusable_or_obsolete()
        return {}
    return known(lags, Rates(now, ends, log, readers), unresolved(using))

"""Reads everything that the overview and the lists of topics and groups are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from monitoring.figures.known import Rates, known
from monitoring.live.inbox import PartitionNow, partition_states
from monitoring.live.limits import COUNT_AT_MOST
from monitoring.models import Alarm
from monitoring.sample.periods import Periods
from monitoring.sample.series import GroupSeries, LogSeries, group_series, log_series
from streams.log.condition import Standing
from streams.log.counting import count_each
from streams.log.lag import Lag, countable, lags
from streams.log.standings import stand
from streams.models import ConsumerGroup, Partition

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Site:
    """Partitions and groups as they are now, with their samples of a time range.

    Of all topics, or of one: see ``read()``.
    """

    using: str
    now: datetime
    periods: Periods
    partitions: Sequence[PartitionNow]
    lags: Sequence[Lag]
    log: Mapping[int, LogSeries]
    readers: Mapping[int, GroupSeries]
    counts: Mapping[Any, int]  # with those that the caller asked for
    alarms: Sequence[Alarm]  # that are not resolved, as far as who asks may know of them

    @classmethod
    def read(
        cls,
        using: str,
        now: datetime,
        length: timedelta = HOUR,
        *,
        topic: int | None = None,
        group: int | None = None,
        counted: Mapping[Any, QuerySet[Any]] | None = None,
        alarms: Sequence[Alarm] = (),
    ) -> Site:
        """Read all topics and groups, those of one ``topic``, or one ``group`` and its topic.

        With one ``group``, inboxes are not read.
        ``counted``: rows that are counted in the same statement as those of the groups.
        """
        periods = Periods.until(now, length)
        groups = ConsumerGroup.objects.using(using).select_related("topic").order_by("name", "pk")
        if topic is not None:
            groups = groups.filter(topic=topic)
        if group is not None:
            groups = groups.filter(pk=group)
        chosen = list(groups)
        if group is not None:
            topic = chosen[0].topic_id if chosen else 0
        rows = None if topic is None else Partition.objects.using(using).filter(topic=topic)
        counts = count_each({**countable(chosen, using), **(counted or {})}, COUNT_AT_MOST, using)
        partitions = partition_states(using, now, rows, inbox=group is None)
        of_topic = None if topic is None else [one.pk for one in partitions]
        of_groups = None if topic is None else [one.pk for one in chosen]
        return cls(
            using=using,
            now=now,
            periods=periods,
            partitions=partitions,
            lags=lags(chosen, using, counts),
            log=log_series(using, periods, of_topic),
            readers=group_series(using, periods, of_groups),
            counts=counts,
            alarms=alarms,
        )

    @cached_property
    def rates(self) -> Rates:
        """Return the rates of now, which all pages show."""
        ends: dict[int, dict[int, int]] = {}
        for one in self.partitions:
            ends.setdefault(one.topic, {})[one.pk] = one.next_offset
        return Rates(self.now, ends, self.log, self.readers)

    @cached_property
    def standings(self) -> list[Standing]:
        """Return how the groups stand, those that need somebody first."""
        found = stand(self.lags, known(self.lags, self.rates, self.alarms), self.now, self.using)
        return sorted(found, key=lambda one: one.order)

    @property
    def starts(self) -> dict[int, int]:
        """Return where the log of each partition was at its first sample of the range."""
        first = {
            pk: next((one for one in series.ends if one is not None), None)
            for pk, series in self.log.items()
        }
        return {pk: int(one[1]) for pk, one in first.items() if one is not None}

    @property
    def topics(self) -> dict[int, int]:
        """Return the topic of each partition."""
        return {one.pk: one.topic for one in self.partitions}

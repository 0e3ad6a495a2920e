"""Ranks the topics of a time, and tells what has changed since the equally long time before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import Max, Min, Q, QuerySet, Sum

from monitoring.figures.site import Site
from monitoring.live.levels import HOUR, TimeSpan, figures_of, levels, whole
from monitoring.live.pipeline import (
    LATE,
    Pipeline,
    Ranked,
    counted_since,
    pipeline,
    ranking,
)
from monitoring.models import (
    BacklogLevel,
    ErrorClass,
    ErrorLevel,
    GroupSample,
    PartitionSample,
)
from monitoring.sample.grain import GRAINS, HOURLY, floor
from monitoring.sample.thinning import KEPT
from streams.runtime_settings import system

ORDERS = ("messages", "bytes", "failures", "lag")
# From this length on, a time begins and ends with an hour: its minutes would be too many rows.
WHOLE_HOURS = timedelta(days=2)
# A shorter time is read from all samples; a longer one from those of an hour, or of six.
ALL_SAMPLES = 2 * HOUR

# By topic: the figure of the time, and that of the time before.
Pairs = dict[int, tuple[int | None, int | None]]


@dataclass(frozen=True)
class RankedFigure:
    """A figure of a time, and of the time before. What is unknown is None.

    ``change`` is by which part of what it was before it has changed.
    """

    now: int | None
    before: int | None
    change: float | None

    @classmethod
    def of(cls, now: int | None, before: int | None) -> RankedFigure:
        change = (now - before) / before if now is not None and before else None
        return cls(now, before, change)


@dataclass(frozen=True)
class RankedTopic:
    """A topic with its place by one of its figures; one without this figure has no place.

    ``moved`` is how many places it has come up, or gone down below zero, since the time before; it
    is None if it had no place then. A topic is new if it was made in the time.
    """

    pk: int
    name: str
    place: int | None
    moved: int | None
    is_new: bool
    messages: RankedFigure
    bytes: RankedFigure
    failures: RankedFigure
    lag: RankedFigure


@dataclass(frozen=True)
class Ranking:
    """The topics in the order of one of their figures. ``before`` is when the time before began."""

    since: datetime
    until: datetime
    before: datetime
    by: str
    by_spark: bool
    topics: Sequence[RankedTopic]


def ranked(
    site: Site,
    spark: Pipeline,
    length: timedelta,
    by: str,
    asked: tuple[datetime, datetime] | None = None,
) -> Ranking:
    """Rank the topics of ``site`` by the figures of a time: ``length`` until now, or ``asked``.

    Spark's figures end where it has counted, so what is ranked ends there, too: otherwise the
    newest time would always look as if it had less than the one before. Where Spark has counted
    nothing of the time, messages and lag are those of the samples. Five statements at most.
    """
    until = asked[1] if asked else site.now
    since = asked[0] if asked else site.now - length
    by_spark = spark.until is not None and since < spark.until
    if by_spark and spark.until is not None:
        until = min(until, spark.until)
        since = since if asked else until - length
    grain = HOURLY if _has_no_minutes(site, since, until) else 1
    since = floor(since, grain)
    until = max(floor(until, grain), since + timedelta(minutes=grain))
    reader = _Reader(site, since, until, is_current=asked is None)
    there = [one for one in site.partitions if not asked or one.topic_created_at < asked[1]]
    new = {one.topic for one in there if one.topic_created_at >= since}
    if by_spark:
        messages, sizes, failures = *reader.traffic(), reader.failures()
    else:
        messages, sizes, failures = reader.sampled(new), {}, {}
    found = {"messages": messages, "bytes": sizes, "failures": failures, "lag": reader.lag()}
    names = {one.topic: one.topic_name for one in there}
    places = _places(names, {pk: pair[0] for pk, pair in found[by].items() if pk in names})
    old = {pk: pair[1] for pk, pair in found[by].items() if pk in names}
    places_before = _places(names, old)
    topics = [
        RankedTopic(
            pk=pk,
            name=name,
            place=places.get(pk),
            moved=places_before[pk] - places[pk] if pk in places and pk in places_before else None,
            is_new=pk in new,
            **{
                figure: RankedFigure.of(*pairs.get(pk, (None, None)))
                for figure, pairs in found.items()
            },
        )
        for pk, name in names.items()
    ]
    topics.sort(key=lambda one: (one.place is None, one.place, -(one.messages.now or 0), one.name))
    return Ranking(since, until, reader.before, by, by_spark, topics)


def _has_no_minutes(site: Site, since: datetime, until: datetime) -> bool:
    """Tell whether minutes are too many for a time, or are deleted already of the time before."""
    days = system("figureMinuteRetentionDays", site.using)
    kept_since = site.now - timedelta(days=days) if days else None
    length = until - since
    return length >= WHOLE_HOURS or (kept_since is not None and since - length < kept_since)


def _places(names: Mapping[int, str], values: Mapping[int, int | None]) -> dict[int, int]:
    """Return the places, from 1, of the topics that have any of the figure."""
    some = [(-value, names[pk], pk) for pk, value in values.items() if value]
    return {pk: place for place, (_value, _name, pk) in enumerate(sorted(some), 1)}


@dataclass(frozen=True)
class _Reader:
    """Reads the figures of all topics of a time and of the time before."""

    site: Site
    since: datetime
    until: datetime
    is_current: bool

    @property
    def before(self) -> datetime:
        return self.since - (self.until - self.since)

    @property
    def spans(self) -> tuple[TimeSpan, TimeSpan]:
        return TimeSpan(self.since, self.until), TimeSpan(self.before, self.since)

    @property
    def grains(self) -> list[int]:
        """Return the grains of the samples that are read: few enough, whatever the time."""
        length = self.until - self.since
        finest = 1 if length <= ALL_SAMPLES else HOURLY if length < WHOLE_HOURS else GRAINS[0]
        return [grain for grain in GRAINS if grain >= finest]

    @cached_property
    def known(self) -> tuple[bool, bool]:
        """Tell of both times whether Spark has counted: nothing is known before it began."""
        first = counted_since(self.site.using)
        return first is not None and first < self.until, first is not None and first <= self.before

    def counted(self, counts: Callable[[int, int], int]) -> Pairs:
        """Return of each topic what ``counts`` says of it and of each time that is known."""
        now, before = self.known
        return {
            pk: (counts(pk, 0) if now else None, counts(pk, 1) if before else None)
            for pk in self.site.topics.values()
        }

    def traffic(self) -> tuple[Pairs, Pairs]:
        """Return messages and bytes as Spark has counted them."""
        found = ranking(self.site.using, self.spans, self.site.topics)
        none = Ranked(0, 0)
        return (
            self.counted(lambda pk, span: found[span].get(pk, none).messages),
            self.counted(lambda pk, span: found[span].get(pk, none).bytes),
        )

    def failures(self) -> Pairs:
        """Return the failed attempts as Spark has counted them.

        That is a job of its own: if it does not get on, those of the newest time are unknown. If
        nothing says how far it has got, all are.
        """
        minutes = ErrorClass.objects.using(self.site.using)
        sums = ErrorLevel.objects.using(self.site.using)
        counts = Counter[tuple[int, int]]()
        topics = self.topics_of_groups
        for group, span, failed in levels(minutes, sums, self.spans, "group", Sum("failed")):
            if group in topics:
                counts[topics[group], span] += int(failed)
        found = self.counted(lambda pk, span: counts[pk, span])
        ends = pipeline(self.site.using, self.site.now, "consumption").until
        if ends is not None and self.until - ends <= LATE:
            return found
        is_known = ends is not None and self.since - ends <= LATE
        return {pk: (None, before if is_known else None) for pk, (_now, before) in found.items()}

    def lag(self) -> Pairs:
        """Return how many messages the group that was furthest behind had to do, at most.

        Of the samples, and of the hours and days that Spark has added up of them.
        """
        using, parts = self.site.using, []
        samples, sums = GroupSample.objects.using(using), BacklogLevel.objects.using(using)
        for number, span in enumerate(self.spans):
            taken = Q(minute__gte=span.since, minute__lt=span.until)
            rows: list[QuerySet[Any]] = [samples.filter(taken, grain__in=self.grains)]
            if len(self.grains) < len(GRAINS) or self.before < self.site.now - KEPT[1, 5]:
                is_open = self.is_current and number == 0
                end = None if is_open or span.until is None else floor(span.until, HOURLY)
                rows.append(sums.filter(whole(TimeSpan(floor(span.since, HOURLY), end))))
            parts += [figures_of(one, number, "group", Max("behind")) for one in rows]
        topics = self.topics_of_groups
        found = [(topics.get(pk), n, most) for pk, n, most in parts[0].union(*parts[1:], all=True)]
        if self.is_current:
            found += [(one.group.topic_id, 0, one.behind) for one in self.site.lags]
        most: dict[tuple[int | None, int], int] = {}
        for topic, number, behind in found:
            if behind is not None:
                most[topic, number] = max(behind, most.get((topic, number), 0))
        return {pk: (most.get((pk, 0)), most.get((pk, 1))) for pk in set(topics.values())}

    @property
    def topics_of_groups(self) -> dict[int, int]:
        return {one.group.pk: one.group.topic_id for one in self.site.lags}

    def sampled(self, new: Iterable[int]) -> Pairs:
        """Return the messages by the offsets that were sampled, where Spark has counted none.

        An offset counts only if it was sampled soon after its instant.
        """
        rows = PartitionSample.objects.using(self.site.using).filter(
            grain__in=self.grains, minute__gte=self.before
        )
        instants = self.before, self.since, self.until
        columns: dict[str, Any] = {}
        for number, instant in enumerate(instants):
            later = Q(minute__gte=instant)
            columns |= {f"at_{number}": Min("minute", filter=later)}
            columns |= {f"offset_{number}": Min("next_offset", filter=later)}
        found = {pk: figures for pk, *figures in rows.values_list("partition").annotate(**columns)}
        soon = (self.until - self.since) / 10
        pairs: Pairs = {}
        for one in self.site.partitions:
            figures = found.get(one.pk, [None] * len(columns))
            at = [
                offset if taken is not None and taken - instant <= soon else None
                for instant, taken, offset in zip(
                    instants, figures[::2], figures[1::2], strict=True
                )
            ]
            if self.is_current:
                at[2] = one.next_offset
            if one.topic in new:
                at[:2] = [0, 0]
            known = pairs.get(one.topic, (None, None))
            pairs[one.topic] = _plus(known[0], at[1], at[2]), _plus(known[1], at[0], at[1])
        return pairs


def _plus(known: int | None, first: int | None, end: int | None) -> int | None:
    """Return what is known with what has come from one offset to another."""
    return known if first is None or end is None else (known or 0) + end - first

"""Reports what the roll-up tables say: ranking of topics, latencies, backlogs and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, FloatField, Max, Min, Sum
from django.db.models.functions import Cast

from monitoring.live.histogram import percentile
from monitoring.models import (
    BacklogLevel,
    ErrorClass,
    Grain,
    Latency,
    Leg,
    Run,
    RunState,
    Traffic,
)
from streams.database.clock import database_now
from streams.durations import of_seconds
from streams.models import ConsumerGroup
from streams.models.namespaces import own

MINUTES = (15, 60, 24 * 60)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# The most rows of one section of the report.
MOST = 20


@dataclass(frozen=True)
class Section:
    """One table of the report."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def sections(using: str) -> Iterator[Section]:
    """Yield the sections of the report, for periods that end now."""
    now = database_now(using)
    yield topics(using, now)
    yield latencies(using, now)
    yield backlogs(using, now)
    yield errors(using, now)


def topics(using: str, now: datetime) -> Section:
    """Return the topics with most messages of each period, with their rank by bytes."""
    rows = [row for minutes in MINUTES for row in ranking(using, now, minutes)]
    last = Run.objects.using(using).filter(job="traffic", state=RunState.DONE)
    until = last.aggregate(until=Max("until"))["until"]
    title = "Topics, rolled up until %s UTC" % (f"{until:%Y-%m-%d %H:%M:%S}" if until else "–")
    columns = ("minutes", "rank", "by bytes", "topic", "messages", "bytes", "delayed")
    return Section("topics", title, columns, rows)


def ranking(using: str, now: datetime, minutes: int) -> list[tuple[Any, ...]]:
    """Return (minutes, rank by messages, rank by bytes, topic, messages, bytes, delayed) rows."""
    since = _minute(now - timedelta(minutes=minutes))
    mine = Traffic.objects.using(using).filter(own("partition__topic__name"))
    of_period = mine.filter(minute__gte=since)
    totals = of_period.values_list("partition__topic__name").annotate(
        Sum("messages"), Sum("bytes"), Sum("delayed")
    )
    by_messages = sorted(totals, key=lambda row: (-row[1], row[0]))
    by_bytes = {row[0]: rank for rank, row in enumerate(sorted(totals, key=lambda row: -row[2]), 1)}
    return [
        (minutes, rank, by_bytes[topic], topic, *figures)
        for rank, (topic, *figures) in enumerate(by_messages[:MOST], 1)
    ]


def latencies(using: str, now: datetime) -> Section:
    """Return how long the groups took in the last hour, in seconds, the slowest first."""
    rows = [
        (
            *(*_names(group), Leg(leg).label, count),
            *(None if value is None else round(value, 3) for value in figures),
        )
        for group, leg, count, *figures in slowness(using, now - HOUR)
    ]
    columns = ("group", "topic", "way", "messages", "mean", "95 %", "longest")
    return Section("latencies", "Latencies of the last hour, in seconds", columns, rows)


def slowness(using: str, since: datetime) -> list[tuple[Any, ...]]:
    """Return (group, leg, messages, mean, p95, longest), slowest first.

    p95 is that of all messages, to within 5 per cent.
    """
    found = Latency.objects.using(using).filter(minute__gte=_minute(since))
    totals = found.values_list("group", "leg").annotate(
        n=Sum("messages"),
        average=Sum(F("mean") * F("messages")) / Cast(Sum("messages"), FloatField()),
        longest=Max("worst"),
    )
    histograms: dict[tuple[int, str], list[str]] = {}
    for id_, leg, text in found.values_list("group", "leg", "histogram").order_by():
        histograms.setdefault((id_, leg), []).append(text)
    groups = ConsumerGroup.objects.using(using).select_related("topic").in_bulk()
    rows = [
        (groups[id_], leg, n, mean, percentile(histograms[id_, leg], 0.95), longest)
        for id_, leg, n, mean, longest in totals
        if id_ in groups
    ]
    whole = {group: mean for group, leg, _n, mean, *_rest in rows if leg == Leg.TOTAL}
    order = [leg.value for leg in Leg]
    return sorted(rows, key=lambda row: (-whole.get(row[0], 0.0), row[0].pk, order.index(row[1])))


def backlogs(using: str, now: datetime) -> Section:
    """Return how far each group was behind in the last day, at most and at least."""
    hours = BacklogLevel.objects.using(using).filter(grain=Grain.HOUR, start__gt=now - DAY - HOUR)
    found = hours.values_list("group").annotate(
        *(Max("behind"), Min("least"), Max("waiting"), Max("dead"), Max("age_seconds"))
    )
    groups = ConsumerGroup.objects.using(using).select_related("topic").in_bulk()
    rows = [
        (*_names(groups[id_]), *figures, of_seconds(age))
        for id_, *figures, age in found.order_by("group")
        if id_ in groups
    ]
    columns = ("group", "topic", "at most", "at least", "retries", "dead", "age")
    return Section("backlog", "Messages behind in the last 24 hours", columns, rows)


def errors(using: str, now: datetime) -> Section:
    """Return the most frequent classes of error of the last day."""
    found = ErrorClass.objects.using(using).filter(minute__gte=_minute(now - DAY))
    totals = found.values_list("group", "error_class").annotate(
        Sum("failed"), Sum("dead"), Max("minute")
    )
    groups = ConsumerGroup.objects.using(using).select_related("topic").in_bulk()
    rows = [(*_names(groups[id_]), *rest) for id_, *rest in totals if id_ in groups]
    rows.sort(key=lambda row: (-row[3], -row[4], row[:3]))
    columns = ("group", "topic", "error", "failed", "dead", "last")
    return Section("errors", "Errors of the last 24 hours", columns, rows[:MOST])


def _names(group: ConsumerGroup) -> tuple[str, str]:
    return group.name, group.topic.name


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)

"""Tells how fresh the roll-ups of Spark are, and reads the few that the overview shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Subquery, Sum

from monitoring.live.levels import TimeSpan, levels
from monitoring.live.spark_jobs import PROGRESS
from monitoring.models import Grain, Latency, Leg, Run, RunState, Traffic, TrafficLevel

# The roll-ups of the last so many minutes; those that beat starts are some minutes behind.
RECENT = timedelta(minutes=15)
LATE = timedelta(minutes=15)


@dataclass(frozen=True)
class Pipeline:
    """Until when a job has rolled up; ``until`` is None if it never has."""

    until: datetime | None
    finished_at: datetime | None
    is_late: bool
    error: str = ""  # of the newest run, if that has failed


@dataclass(frozen=True)
class Percentiles:
    """How long messages took from the send until they were done, in the worst minute."""

    p50: timedelta
    p95: timedelta
    p99: timedelta


def pipeline(using: str, now: datetime, job: str = "traffic") -> Pipeline:
    """Return how fresh the roll-ups of a job are, by one statement."""
    runs = Run.objects.using(using).filter(job=job).order_by("-pk")
    further = runs.filter(PROGRESS)  # however many have failed since
    end = further.filter(until__isnull=False).values("until")[:1]
    ends = Subquery(end), Subquery(further.values("finished_at")[:1])
    newest = runs.values_list("state", "error", *ends).first()
    if newest is None:
        return Pipeline(None, None, is_late=False)
    state, error, until, finished_at = newest
    is_late = finished_at is None or now - finished_at > LATE
    return Pipeline(until, finished_at, is_late, error if state == RunState.FAILED else "")


def percentiles(using: str, now: datetime, groups: Sequence[int]) -> dict[int, Percentiles]:
    """Return how long each group took in its worst minute of the last fifteen."""
    rows = Latency.objects.using(using).filter(
        leg=Leg.TOTAL, minute__gte=now - RECENT, group__in=list(groups)
    )
    worst = rows.values_list("group").annotate(Max("p50"), Max("p95"), Max("p99"))
    return {
        group: Percentiles(*(timedelta(seconds=value) for value in values))
        for group, *values in worst
    }


@dataclass(frozen=True)
class Ranked:
    """What Spark has counted of a topic in the time range."""

    messages: int
    bytes: int


def ranking(
    using: str, spans: Sequence[TimeSpan], topics: Mapping[int, int]
) -> list[dict[int, Ranked]]:
    """Return what Spark has counted of each topic in each of these times, by one statement.

    ``topics``: the topic of each partition. Not by a join: a server may begin with the partitions,
    and read all minutes of each.
    """
    minutes, sums = Traffic.objects.using(using), TrafficLevel.objects.using(using)
    figures = Sum("messages"), Sum("bytes")
    found: list[dict[int, Ranked]] = [{} for _span in spans]
    for partition, number, messages, size in levels(minutes, sums, spans, "partition", *figures):
        if (topic := topics.get(partition)) is not None:
            before = found[number].get(topic, Ranked(0, 0))
            found[number][topic] = Ranked(before.messages + int(messages), before.bytes + int(size))
    return found


def counted_since(using: str) -> datetime | None:
    """Return since when Spark has counted traffic, to the hour; None if it never has."""
    hours = TrafficLevel.objects.using(using).filter(grain=Grain.HOUR)
    return hours.order_by("start").values_list("start", flat=True).first()

"""Computes how the archive of each topic stands: its days, its gaps, and what waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

from django.db.models import Count, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Greatest

from monitoring.models.archive import ArchivedDay
from streams.models import Message, Partition, Topic
from streams.models.namespaces import own
from streams.retain.rule import default_rule, rule_of

# In days, up to today: what the strips of the page show.
DAYS = 90
DAY = timedelta(days=1)
# Of a day in a strip; "" is a day of which there is nothing.
KEPT, LATE, GAP = "kept", "late", "gap"
# Of a topic, the worst first.
STATES = (GAP, "held", "waits", KEPT, "off")


@dataclass(frozen=True)
class DayStretch:
    """Days in a row of the same state; ``at`` is the number of the first one in the strip."""

    state: str
    at: int
    days: int
    first: date

    @property
    def last(self) -> date:
        return self.first + (self.days - 1) * DAY


@dataclass(frozen=True)
class ArchiveGap:
    """Offsets that the archive lacks though it has those before and after them.

    ``is_in_log`` tells whether the log has all of them.
    """

    topic: str
    number: int
    first_offset: int
    last_offset: int
    since: date
    until: date
    is_in_log: bool

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.number}@{self.first_offset}-{self.last_offset}"

    @property
    def messages(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True)
class ArchivedLog:
    """What the archive has of one partition in the last DAYS."""

    partition: int
    topic: str
    number: int
    first_offset: int
    end_offset: int
    offsets: int
    first_day: date
    last_day: date
    messages: int
    bytes: int
    archived_at: datetime


@dataclass(frozen=True)
class OpenLog:
    """What of one partition is not archived yet; ``since`` is when its oldest message came."""

    partition: int
    topic: str
    number: int
    first_offset: int
    next_offset: int
    archived_offset: int
    since: datetime | None

    @property
    def left(self) -> int:
        return self.next_offset - max(self.first_offset, self.archived_offset)


@dataclass(frozen=True)
class ArchiveFigures:
    """How the archive of one topic stands; its messages and bytes are those of the last DAYS.

    ``since`` is when the oldest message came that is to be archived and is not: only of a day that
    is over. ``held`` is how long ago that day should have been archived, from a day on. ``over`` is
    for how much longer than its retention says that message is kept. A topic that is not set to
    be archived any more, or is gone, has no ``left``.
    """

    name: str
    pk: int | None
    state: str
    keeps: str
    first_day: date | None
    last_day: date | None
    archived_at: datetime | None
    messages: int
    bytes: int
    left: int | None
    since: datetime | None
    over: timedelta | None
    held: timedelta | None
    gaps: Sequence[ArchiveGap]
    stretches: Sequence[DayStretch]

    @property
    def order(self) -> tuple[int, timedelta, str]:
        """Sort what needs somebody first: gaps, then what is held back for longest."""
        return STATES.index(self.state), -(self.held or timedelta(0)), self.name


def archive_figures(using: str, now: datetime, topic: str = "") -> list[ArchiveFigures]:
    """Return how the archive of each topic stands, or of one, what needs somebody first."""
    today = now.astimezone(UTC).date()
    rows = ArchivedDay.objects.using(using).filter(own("topic"))
    names = [topic] if topic else [*rows.order_by().values_list("topic", flat=True).distinct()]
    found = rows.filter(topic__in=names, day__gt=today - DAYS * DAY)
    topics = {one.name: one for one in _topics(using, names)}
    archived, waiting = _by_topic(_archived(found)), _by_topic(open_logs(using, topic))
    gaps = _by_topic(list(_gaps(found, archived, waiting, today)))
    default = default_rule(using)
    figures = []
    for name in {*names, *waiting}:
        one, logs = topics.get(name), archived.get(name, [])
        if one is None and not logs:
            continue
        rule = rule_of(one, using, default) if one and one.archive else None
        since = _waits_since(waiting.get(name, []), today)
        over = now - since - rule.age if since and rule and rule.age else None
        due = since and _midnight(since.date() + DAY)
        held = now - due if due and now - due > DAY else None
        first_day = min((log.first_day for log in logs), default=None)
        last_day = max((log.last_day for log in logs), default=None)
        of_topic = gaps.get(name, [])
        figures.append(
            ArchiveFigures(
                name=name,
                pk=None if one is None else one.pk,
                state=_state(of_topic, held, since, is_on=rule is not None),
                keeps="" if rule is None else str(rule),
                first_day=first_day,
                last_day=last_day,
                archived_at=max((log.archived_at for log in logs), default=None),
                messages=sum(log.messages for log in logs),
                bytes=sum(log.bytes for log in logs),
                left=None if rule is None else sum(log.left for log in waiting.get(name, [])),
                since=since,
                over=over if over and over > timedelta(0) else None,
                held=held,
                gaps=of_topic,
                stretches=_stretches(today, first_day, last_day, since, of_topic),
            )
        )
    return sorted(figures, key=lambda one: one.order)


def _topics(using: str, names: Sequence[str]) -> QuerySet[Topic]:
    """Return the topics of these names, and those that are set to be archived."""
    return Topic.objects.using(using).filter(Q(name__in=names) | Q(archive=True))


def _waits_since(logs: Sequence[OpenLog], today: date) -> datetime | None:
    """Return when the oldest message that is not archived came, if its day is over."""
    since = min((log.since.astimezone(UTC) for log in logs if log.since), default=None)
    return since if since and since.date() < today else None


def _state(
    gaps: Sequence[ArchiveGap], held: timedelta | None, since: datetime | None, *, is_on: bool
) -> str:
    if gaps:
        return "gap"
    if held:
        return "held"
    if since:
        return "waits"
    return "kept" if is_on else "off"


def _stretches(
    today: date,
    first_day: date | None,
    last_day: date | None,
    since: datetime | None,
    gaps: Sequence[ArchiveGap],
) -> list[DayStretch]:
    """Return the strip of a topic: what is archived, what waits, and the gaps in it."""
    begin = today - (DAYS - 1) * DAY
    states = [""] * DAYS

    def fill(first: date, last: date, state: str) -> None:
        for at in range(max(0, (first - begin).days), min(DAYS, (last - begin).days + 1)):
            states[at] = state

    if first_day and last_day:
        fill(first_day, last_day, KEPT)
    if since:
        fill(since.date(), today - DAY, LATE)
    for gap in gaps:
        fill(gap.since, gap.until, GAP)
    found, at = [], 0
    for state, together in groupby(states):
        length = len(list(together))
        found.append(DayStretch(state, at, length, begin + at * DAY))
        at += length
    return found


def open_logs(using: str, topic: str = "") -> list[OpenLog]:
    """Return the partitions of the topics that are set to be archived; index: ems_msg_log."""
    rows = Partition.objects.using(using).filter(own("topic__name"), topic__archive=True)
    if topic:
        rows = rows.filter(topic__name=topic)
    begin = Greatest(F("archived_offset"), F("first_offset"))
    oldest = Message.objects.using(using).filter(
        partition=OuterRef("pk"), offset__gte=OuterRef("begin"), offset__lt=OuterRef("next_offset")
    )
    since = Subquery(oldest.order_by("offset").values("sequenced_at")[:1])
    columns = ("pk", "topic__name", "number", "first_offset", "next_offset", "archived_offset")
    found = rows.annotate(begin=begin).annotate(since=since).order_by("number")
    return [OpenLog(*row) for row in found.values_list(*columns, "since")]


def days(using: str, now: datetime, length: int, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return what is archived of each of the last days, the newest first."""
    since = now.astimezone(UTC).date() - length * DAY
    rows = ArchivedDay.objects.using(using).filter(topic__in=names, day__gte=since)
    counted = (
        rows.order_by("-day")
        .values_list("day")
        .annotate(
            topics=Count("topic", distinct=True),
            logs=Count("pk"),
            rows=Sum("messages"),
            bodies=Sum("bytes"),
            archived_at=Max("archived_at"),
        )
    )
    return list(counted)


def _archived(rows: QuerySet[ArchivedDay]) -> list[ArchivedLog]:
    counted = rows.order_by().values_list("partition", "topic", "number")
    return [
        ArchivedLog(*row)
        for row in counted.annotate(
            first=Min("first_offset"),
            end=Max("end_offset"),
            offsets=Sum(F("end_offset") - F("first_offset")),
            first_day=Min("day"),
            last_day=Max("day"),
            rows=Sum("messages"),
            bodies=Sum("bytes"),
            newest=Max("archived_at"),
        )
    ]


def _gaps(
    rows: QuerySet[ArchivedDay],
    archived: Mapping[str, Sequence[ArchivedLog]],
    waiting: Mapping[str, Sequence[OpenLog]],
    today: date,
) -> Iterator[ArchiveGap]:
    """Yield the gaps of each partition: only of those that have some, the days are read.

    A day without messages has no row, and is none.
    """
    logs = {log.partition: log for of_topic in archived.values() for log in of_topic}
    now = {log.partition: log for of_topic in waiting.values() for log in of_topic}

    def gap(pk: int, first: int, end: int, since: date, until: date) -> ArchiveGap:
        is_in_log = pk in now and now[pk].first_offset <= first
        place = logs[pk].topic, logs[pk].number
        return ArchiveGap(*place, first, end - 1, since, max(since, until), is_in_log)

    broken = [pk for pk, log in logs.items() if log.offsets < log.end_offset - log.first_offset]
    chosen = rows.filter(partition__in=broken).order_by("partition", "first_offset")
    columns = chosen.values_list("partition", "day", "first_offset", "end_offset")
    for (pk, day, _, end), (after, next_day, first, _) in pairwise(columns if broken else ()):
        if pk == after and end < first:
            yield gap(pk, end, first, min(day + DAY, next_day), next_day - DAY)
    for pk, log in logs.items():
        if pk in now and now[pk].archived_offset > log.end_offset:
            # What was archived last has left the manifest.
            day = min(log.last_day + DAY, today - DAY)
            yield gap(pk, log.end_offset, now[pk].archived_offset, day, day)


def _by_topic(logs: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for log in logs:
        found.setdefault(log.topic, []).append(log)
    return found


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)

"""Reads what happened in the time of a chart: deployments, what operators did, and alarms.

What happened at about the same time is one flag, so that a chart has few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from monitoring.charts.text import number
from monitoring.models import Alarm, Mark, MarkKind
from streams.models import ConsumerGroup, Topic

# Flags of a chart: more do not fit on a phone.
FLAGS = 16
# And so many ticks can be told apart.
TICKS = 120
# Of each kind, a flag tells so many one by one; and a deployment so many groups.
TOLD = 3
# Marks, and alarms, that are read: the newest.
MOST = 5000

MINUTE = timedelta(minutes=1)

ALARM, DEPLOYMENT = "alarm", str(MarkKind.DEPLOYMENT)
# How a flag looks: by the first of these that it has.
LOOKS = ("act", ALARM, DEPLOYMENT)
# What is told of those beyond TOLD.
MORE = {ALARM: gettext_lazy("Alarms"), "act": gettext_lazy("Operators")}


@dataclass(frozen=True)
class Told:
    """One thing that happened, or ``count`` of the same; ``at`` is the newest of them."""

    kind: str
    label: Any
    text: str
    count: int
    at: datetime
    who: str
    url: str


@dataclass(frozen=True)
class Flag:
    """What happened between two instants; the flags of a page are numbered from 1, in order."""

    number: int
    at: datetime
    until: datetime
    look: str
    told: Sequence[Told]

    @property
    def is_long(self) -> bool:
        return self.until - self.at >= MINUTE


@dataclass(frozen=True)
class Happened:
    """What the charts of a page mark; what happened before ``since`` is left out.

    Where there are more deployments than flags, they are ticks, and ``deployments`` sums them up:
    among so many flags nobody would find what an operator has done.
    """

    flags: Sequence[Flag]
    ticks: Sequence[datetime] = ()
    deployments: Told | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class PageGroups:
    """What a page is about: groups by their ids; of one topic, or of all; or one group alone."""

    groups: Mapping[int, ConsumerGroup]
    topic: Topic | None = None
    is_one: bool = False

    @property
    def topics(self) -> set[int]:
        own = {self.topic.pk} if self.topic else set()
        return own | {group.topic_id for group in self.groups.values()}


@dataclass(frozen=True, slots=True)
class _One:
    """A row of a mark or an alarm. What is told of it is made of few of them: see _told()."""

    look: str
    same: Hashable  # what is the same is told once
    at: datetime
    until: datetime
    row: Any
    groups: Collection[int] = ()


OF_MARK = "kind", "at", "until", "topic", "groups", "count", "text", "who"
OF_ALARM = "pk", "rule", "subject", "topic", "group", "metric", "severity", "fired_at"


def happened(
    using: str, first: datetime, now: datetime, shown: PageGroups, *, alarms: bool
) -> Happened:
    """Return what happened from ``first`` on; with the alarms, two statements.

    It reads columns, not objects: there may be thousands of rows, of which few are told.
    """
    rows = Mark.objects.using(using).filter(at__gte=first).order_by("-at")
    marks = list(rows.values_list(*OF_MARK, named=True)[:MOST])
    fired = _alarms(using, first, shown) if alarms else []
    cut = [marks[-1].at] if len(marks) == MOST else []
    cut += [fired[-1].fired_at] if len(fired) == MOST else []
    since = max(cut, default=None)
    ones = [*_of_marks(marks, shown), *map(_of_alarm, fired)]
    starts = sorted((one for one in ones if one.look == DEPLOYMENT), key=_at)
    if len(starts) <= FLAGS:
        return Happened(list(_flags(ones, first, now, shown)), since=since)
    flagged = [one for one in ones if one.look != DEPLOYMENT]
    return Happened(
        flags=list(_flags(flagged, first, now, shown)),
        ticks=[near[0].at for near in _near(starts, (now - first) / TICKS)],
        deployments=_deployment(starts, shown),
        since=since,
    )


def _alarms(using: str, first: datetime, shown: PageGroups) -> list[Any]:
    """Return the alarms that fired since ``first``: by the indexes of slot and resolved_at."""
    rows = Alarm.objects.using(using).filter(
        Q(slot=0) | Q(resolved_at__gte=first), fired_at__gte=first
    )
    if shown.topic is not None:
        names = {str(group.name) for group in shown.groups.values()}
        rows = rows.filter(topic=shown.topic.name, group__in=["", *names])
    return list(rows.order_by("-fired_at").values_list(*OF_ALARM, named=True)[:MOST])


def _of_alarm(row: Any) -> _One:
    return _One(ALARM, (row.rule, row.subject), row.fired_at, row.fired_at, row)


def _of_marks(rows: Iterable[Any], shown: PageGroups) -> Iterator[_One]:
    topics, known = shown.topics, shown.groups.keys()
    for row in rows:
        groups = known & row.groups
        if not groups and (row.groups or row.topic not in topics):
            continue
        look = DEPLOYMENT if row.kind == DEPLOYMENT else "act"
        yield _One(look, (row.kind, row.topic, *groups), row.at, row.until, row, groups)


def _told(one: _One, count: int, shown: PageGroups) -> Told:
    row = one.row
    if one.look == ALARM:
        alarm = Alarm(**row._asdict())
        text = alarm.label if shown.is_one and alarm.group else str(alarm)
        url = _url("admin:ems_monitoring_alarm_change", row.pk)
        return Told(ALARM, alarm.get_severity_display(), text, count, one.at, "", url)
    text, url = row.text, ""
    if row.kind == MarkKind.PURGE:
        text = _("%(place)s: %(n)s messages skipped") % {"place": text, "n": number(row.count)}
    if one.look == DEPLOYMENT:
        url = _url("admin:ems_consumer_changelist")
    elif one.groups:
        (group,) = one.groups
        # On its own page a group needs no name.
        text = text if shown.is_one else f"{shown.groups[group]}: {text}"
        url = _url("admin:ems_consumergroup_history", group)
    else:
        url = _url("admin:ems_topic_history", row.topic)
    return Told(row.kind, MarkKind(row.kind).label, text, count, one.at, row.who, url)


def _url(name: str, *args: int | None) -> str:
    """Return the URL of a page; empty if the project has taken it out of its admin."""
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""


def _flags(
    ones: Sequence[_One], first: datetime, now: datetime, shown: PageGroups
) -> Iterator[Flag]:
    """Yield the flags: each is so far from the one before that neither hides the other."""
    near = _near(sorted(ones, key=_at), (now - first) / FLAGS)
    for place, found in enumerate(near, 1):
        looks = {one.look for one in found}
        look = next(look for look in LOOKS if look in looks)
        until = max(one.until for one in found)
        yield Flag(place, found[0].at, until, look, list(_summed(found, shown)))


def _near(ones: Iterable[_One], apart: timedelta) -> list[list[_One]]:
    near: list[list[_One]] = []
    for one in ones:
        if near and one.at - near[-1][0].at < apart:
            near[-1].append(one)
        else:
            near.append([one])
    return near


def _at(one: _One) -> datetime:
    return one.at


def _summed(found: Sequence[_One], shown: PageGroups) -> Iterator[Told]:
    """Yield what operators did, then the alarms, each TOLD of them, and one sum of the starts."""
    for look in LOOKS[:2]:
        same: dict[Hashable, list[_One]] = {}
        for one in found:
            if one.look == look:
                same.setdefault(one.same, []).append(one)
        # Those that came most often, then the newest.
        order = sorted(same.values(), key=lambda ones: (len(ones), ones[-1].at), reverse=True)
        for ones in order[:TOLD]:
            yield _told(ones[-1], len(ones), shown)
        if rest := [one for ones in order[TOLD:] for one in ones]:
            text = ngettext("and %d more", "and %d more", len(rest)) % len(rest)
            yield Told(look, MORE[look], text, 1, rest[-1].at, "", "")
    if starts := [one for one in found if one.look == DEPLOYMENT]:
        yield _deployment(starts, shown)


def _deployment(starts: Sequence[_One], shown: PageGroups) -> Told:
    count = sum(one.row.count for one in starts)
    text = ngettext("%(n)s process", "%(n)s processes", count) % {"n": number(count)}
    if not shown.is_one:
        found = {pk for one in starts for pk in one.groups}
        names = sorted({str(shown.groups[pk].name) for pk in found})
        rest = len(names) - TOLD
        more = [ngettext("%d more group", "%d more groups", rest) % rest] if rest > 0 else []
        text = f"{text}: {', '.join([*names[:TOLD], *more])}"
    return replace(_told(starts[-1], len(starts), shown), text=text)

"""Marks the starts of consumer processes: many within a short time are one deployment."""

from __future__ import annotations

from datetime import datetime, timedelta

from monitoring.models import Mark, MarkKind
from streams.models import Consumer
from streams.models.namespaces import own

# A process is registered at the latest so long after the instant that it says.
LATE = timedelta(seconds=10)
# A deployment is over when nothing has started for so long; and a loop of restarts is several.
QUIET, LONGEST = timedelta(minutes=10), timedelta(hours=1)
# Clients that pull over HTTP come and go with each request.
PULLS = "http@"


def mark_deployments(using: str, since: datetime, until: datetime) -> None:
    """Mark the processes that have started in this time; those that are gone again are left out.

    A process that runs the same groups as those that started just before belongs to their mark.
    """
    rows = Consumer.objects.using(using).filter(
        own("group__name"), started_at__gte=since - LATE, started_at__lt=until - LATE
    )
    rows = rows.exclude(client_id__startswith=PULLS).order_by("started_at")
    groups: dict[str, set[int]] = {}
    starts: dict[str, datetime] = {}
    for client, group, at in rows.values_list("client_id", "group", "started_at"):
        groups.setdefault(client, set()).add(group)
        starts.setdefault(client, at)
    if not starts:
        return
    earliest = min(starts.values()) - LONGEST
    marks = Mark.objects.using(using).filter(kind=MarkKind.DEPLOYMENT, at__gte=earliest)
    newest = {tuple(mark.groups): mark for mark in marks.order_by("at")}
    for client, at in starts.items():
        place = tuple(sorted(groups[client]))
        mark = newest.get(place)
        if mark is None or at - mark.until > QUIET or at - mark.at > LONGEST:
            mark = newest[place] = Mark(
                kind=MarkKind.DEPLOYMENT, at=at, until=at, groups=list(place), count=0
            )
        mark.count, mark.until = mark.count + 1, at
        mark.save(using=using)

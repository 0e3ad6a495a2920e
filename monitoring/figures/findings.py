"""Tells what the audits have found, and where: what is wrong now, and what was wrong before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.models import AuditFinding
from streams.errors import InvalidPlace
from streams.log.places import LogPlace
from streams.models import ConsumerGroup, Topic

# In the place of a finding: between the group and the log.
ON = " on "
# Offsets as the continuous audit says them, in any language.
OFFSETS = re.compile(r"(\d+) ?[–…] ?(\d+)")

MEANS = {
    "hole": _("An offset is not in the log, or a day of the archive lacks messages."),
    "repeat": _("An offset is in the log twice, or a group has done a message more than once."),
    "lost delivery": _("A group has passed a message that none of its deliveries has."),
    "order break": _("Messages are not in the order in which they were sequenced or claimed."),
    "disorder": _("Messages are not in the order in which they were sequenced or claimed."),
    "uncovered": _("A group has passed a message that none of its deliveries has."),
    "missing": _("Messages were gone when a group was to read them."),
}


@dataclass(frozen=True)
class FindingFigures:
    """What a page shows of a finding: the ``group``, ``where`` in the log, and the ``offsets``.

    ``log`` is its place for the search; "" if it says none, or its topic is gone.
    """

    pk: int
    kind: str
    group: str
    where: str
    offsets: str
    detail: str
    messages: int
    source: str
    found_at: datetime
    seen_at: datetime
    log: str
    topic_pk: int | None
    group_pk: int | None


def shown(rows: Iterable[AuditFinding], using: str) -> list[FindingFigures]:
    """Return the findings with the topics and groups that they name; two statements."""
    found = [(row, *_named(row)) for row in rows]
    topics = {topic for _row, topic, _group, _log in found if topic}
    groups = {group for _row, _topic, group, _log in found if group}
    ids = dict(Topic.objects.using(using).filter(name__in=topics).values_list("name", "pk"))
    readers: dict[tuple[str, str], int] = {}
    if groups:
        named = ConsumerGroup.objects.using(using).filter(name__in=groups, topic__name__in=topics)
        readers = {(t, g): pk for t, g, pk in named.values_list("topic__name", "name", "pk")}
    return [
        FindingFigures(
            pk=row.pk,
            kind=row.kind,
            group=group,
            where=_where(row.place)[0],
            offsets=_where(row.place)[1],
            detail=row.detail,
            messages=row.count,
            source=row.get_source_display(),
            found_at=row.found_at,
            seen_at=row.seen_at,
            log=log if topic in ids else "",
            topic_pk=ids.get(topic),
            group_pk=readers.get((topic, group)),
        )
        for row, topic, group, log in found
    ]


def means(rows: Iterable[FindingFigures]) -> dict[str, str]:
    """Return what the kinds of these findings mean."""
    kinds = sorted({row.kind for row in rows} & MEANS.keys())
    return {kind: str(MEANS[kind]) for kind in kinds}


def _where(place: str) -> tuple[str, str]:
    """Return the log that a place names, and the offsets in it: "@7-9", or "" if it says none."""
    log, at, offsets = place.rpartition(ON)[2].rpartition("@")
    return (log, at + offsets) if at else (offsets, "")


def _named(row: Any) -> tuple[str, str, str]:
    """Return the topic, the group and the place in the log that a finding names; "" is none."""
    group, _on, where = row.place.rpartition(ON)
    try:
        place = LogPlace.parse(where)
    except InvalidPlace:
        offsets = OFFSETS.search(row.detail)
        log = f"{where}@{offsets[1]}-{offsets[2]}" if offsets and "/" in where else ""
        return LogPlace(where, 0, 0).topic, group, log
    return place.topic, group, str(place)

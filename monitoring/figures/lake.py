"""Computes how the lake of each topic stands: its files, and how far its partitions are in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum
from django.db.models.functions import Greatest

from monitoring.models.lake import LakeFile, LakePosition
from streams.models.namespaces import own

IN_LAKE = Q(retired_at__isnull=True)


@dataclass(frozen=True)
class LakeFigures:
    """How the lake of one topic stands.

    ``retired`` files have left it and are deleted a day later. ``behind`` is how many messages of
    the log are neither in it nor archived; None if it has no position.
    """

    name: str
    files: int
    retired: int
    messages: int
    bytes: int
    size: int
    first_day: date | None
    last_day: date | None
    added_at: datetime | None
    behind: int | None


def lake_figures(using: str, topic: str = "") -> list[LakeFigures]:
    """Return how the lake of each topic stands, or of one, by name; two statements."""
    files = LakeFile.objects.using(using).filter(own("topic"))
    places = LakePosition.objects.using(using).filter(own("partition__topic__name"))
    if topic:
        files = files.filter(topic=topic)
        places = places.filter(partition__topic__name=topic)
    # What is archived is not written to the lake any more: see sparkjobs/lake/manifest.py.
    reached = Greatest(F("next_offset"), F("partition__archived_offset"))
    left = Sum(F("partition__next_offset") - reached)
    behind = dict(places.order_by().values_list("partition__topic__name").annotate(left=left))
    counted = (
        files.order_by()
        .values("topic")
        .annotate(
            files=Count("pk", filter=IN_LAKE),
            retired=Count("pk", filter=~IN_LAKE),
            rows=Sum("messages", filter=IN_LAKE, default=0),
            bodies=Sum("bytes", filter=IN_LAKE, default=0),
            taken=Sum("size", filter=IN_LAKE, default=0),
            first=Min("day", filter=IN_LAKE),
            last=Max("day", filter=IN_LAKE),
            added=Max("added_at"),
        )
    )
    found = {row["topic"]: row for row in counted}
    figures = []
    for name in sorted({*found, *behind}):
        row: Mapping[str, Any] = found.get(name, {})
        figures.append(
            LakeFigures(
                name=name,
                files=row.get("files", 0),
                retired=row.get("retired", 0),
                messages=row.get("rows", 0),
                bytes=row.get("bodies", 0),
                size=row.get("taken", 0),
                first_day=row.get("first"),
                last_day=row.get("last"),
                added_at=row.get("added"),
                behind=behind.get(name),
            )
        )
    return figures


def files_by_day(using: str, topic: str = "") -> dict[date, tuple[int, int]]:
    """Return how many files of the lake each day has, and what they take."""
    rows = LakeFile.objects.using(using).filter(own("topic"), IN_LAKE)
    if topic:
        rows = rows.filter(topic=topic)
    counted = rows.order_by().values_list("day").annotate(Count("pk"), Sum("size"))
    return {day: (files, size) for day, files, size in counted}

"""Shows the archive and the lake: their days, the gaps, and what is held back for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from monitoring import jobs
from monitoring.figures.archive import (
    DAYS,
    ArchiveFigures,
    OpenLog,
    archive_figures,
    days,
    open_logs,
)
from monitoring.figures.lake import files_by_day, lake_figures
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.live.spark_jobs import own
from monitoring.models import LakeFile, LakePosition, Run, RunState
from monitoring.pages.nightly import ABOUT, Nightly
from monitoring.pages.starting import HOUR, StartingPage, lacking
from streams.conf import settings

JOB = "archive"
# How the error of a run begins that has archived other topics: sparkjobs/jobs/archive.py.
NOT_ARCHIVED = "NotArchived: "
# In days: what the table of the days shows, if the URL does not ask for all.
NEWEST = 14


@dataclass(frozen=True)
class ArchivedDayFigures:
    """What is archived of a day, and the files that the lake has of it."""

    day: date
    topics: int
    partitions: int
    messages: int
    bytes: int
    archived_at: datetime
    files: int
    size: int


@dataclass(frozen=True)
class HeldForArchive:
    """Topics that are held back for the archive, all for the same reason, the longest first."""

    reason: str
    topics: Sequence[str]
    since: datetime
    left: int


@dataclass(frozen=True)
class PartitionOfArchive:
    """How far one partition is in its log, in the archive and in the lake."""

    number: int
    first_offset: int
    next_offset: int
    archived_offset: int
    left: int
    since: datetime | None
    lake_first: int | None
    lake_next: int | None


class ArchivePage(StartingPage):
    name = "archive"
    route = "archive/"
    title = _("Archive and lake")
    template_name = "ems_monitoring/archive.html"
    tab: ClassVar[str] = "archive"
    permissions = ("ems_monitoring.view_archivedday", "ems_monitoring.view_run")
    starts: ClassVar[Mapping[str, tuple[str, int]]] = {JOB: (JOB, 12 * HOUR)}

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        topic = self.request.GET.get("topic", "")
        found = archive_figures(self.using, self.now, topic)
        lake = lake_figures(self.using, topic) if self.may_view(LakeFile) else None
        if topic and not found and not lake:
            raise Http404
        rows = Run.objects.using(self.using).filter(job=own(JOB)).order_by("-pk")
        newest = rows.first()
        at_most = None if "all" in self.request.GET else LISTED_AT_MOST
        return {
            "topic": topic,
            "topics": found[:at_most],
            "topics_in_all": len(found),
            "set_to": sum(1 for one in found if one.left is not None),
            "archived_messages": sum(one.messages for one in found),
            "archived_bytes": sum(one.bytes for one in found),
            "left": sum(one.left or 0 for one in found),
            "oldest": min((one.since for one in found if one.since), default=None),
            "gaps": [gap for one in found for gap in one.gaps],
            "held": self._held(found, newest),
            "run": newest and Nightly.of(newest, self.now),
            "place": str(settings().ARCHIVE or ""),
            "days": self._days(topic, [one.name for one in found], at_most),
            "partitions": self._partitions(topic) if topic else None,
            "lake": lake and lake[:at_most],
            "lake_in_all": len(lake or ()),
        }

    def render(self, request: HttpRequest, figures: Mapping[str, Any]) -> HttpResponse:
        first = self.now - timedelta(days=DAYS - 1)
        strip = {"first": first, "last": self.now, "length": DAYS, "newest": NEWEST}
        may = {"may_start": self.may_start, "lacking": lacking() if self.may_start else ""}
        query = self.asked.query()
        here = f"{self.url()}{query}&" if query else f"{self.url()}?"
        every = {"topic": figures["topic"], "all": 1} if figures["topic"] else {"all": 1}
        urls = {"here": here, "every": here + urlencode(every)}
        return super().render(request, {**figures, **may, **urls, "strip": strip})

    def _held(self, found: Sequence[ArchiveFigures], newest: Run | None) -> list[HeldForArchive]:
        """Return what is held back, by reason: one night that is missed holds back all topics."""
        reasons: dict[str, list[ArchiveFigures]] = {}
        for one in found:
            if one.held is not None:
                reasons.setdefault(self._reason(one.name, newest), []).append(one)
        return [
            HeldForArchive(
                reason,
                [one.name for one in held],
                min(one.since for one in held if one.since),
                sum(one.left or 0 for one in held),
            )
            for reason, held in reasons.items()
        ]

    def _reason(self, topic: str, newest: Run | None) -> str:
        """Return why nothing has archived the topic."""
        # An option file of the project's own may name one.
        if not settings().ARCHIVE and jobs.VARIABLE not in os.environ:
            return gettext("EMS['ARCHIVE'] names no place for the archive.")
        if newest is None:
            return gettext("No job has archived anything yet.")
        last = Nightly.of(newest, self.now)
        if last.is_killed:
            return gettext("The last run was killed.")
        if last.is_at_work:
            return gettext("The job is at work.")
        if last.state == RunState.FAILED:
            if not newest.error.startswith(NOT_ARCHIVED):
                return newest.error[:ABOUT]
            # It names each topic that could not be archived, with the reason.
            for part in newest.error.removeprefix(NOT_ARCHIVED).split("; "):
                if part.startswith(f"{topic} "):
                    return part[:ABOUT]
        if last.is_late:
            return gettext("Nothing has started the job since its last run.")
        return gettext("The last run has not come to it.")

    def _days(
        self, topic: str, names: Sequence[str], at_most: int | None
    ) -> list[ArchivedDayFigures]:
        found = days(self.using, self.now, NEWEST if at_most else DAYS, names)
        files = files_by_day(self.using, topic) if self.may_view(LakeFile) else {}
        rows: list[list[Any]] = [[*row, *files.get(row[0], (0, 0))] for row in found]
        return [ArchivedDayFigures(*row) for row in rows]

    def _partitions(self, topic: str) -> list[PartitionOfArchive]:
        lake: dict[int, tuple[int, int]] = {}
        logs: list[OpenLog] = open_logs(self.using, topic)
        if self.may_view(LakePosition):
            rows = LakePosition.objects.using(self.using)
            places = rows.filter(pk__in=[log.partition for log in logs])
            lake = {pk: (first, end) for pk, first, end in places.values_list()}
        return [
            PartitionOfArchive(
                number=log.number,
                first_offset=log.first_offset,
                next_offset=log.next_offset,
                archived_offset=log.archived_offset,
                left=log.left,
                since=log.since,
                lake_first=lake.get(log.partition, (None, None))[0],
                lake_next=lake.get(log.partition, (None, None))[1],
            )
            for log in logs
        ]

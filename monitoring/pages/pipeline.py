"""Shows the runs of the Spark jobs: how far they are, how fast, how they failed; starts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.utils.translation import gettext_lazy as _

from monitoring.live.spark_jobs import AT_NIGHT, JOBS, LIMITS, SERVE, SILENT, at_work
from monitoring.models import Run, RunState
from monitoring.pages.archive import ArchivePage
from monitoring.pages.audit import AuditPage
from monitoring.pages.base import FiguresPage
from monitoring.pages.nightly import newest
from monitoring.pages.starting import HOUR, StartingPage, lacking

DAY = timedelta(days=1)
# Runs, failures, and characters of the end of an error that the page shows.
RUNS, FAILURES, ERROR_END = 30, 5, 2000


@dataclass(frozen=True)
class Job:
    """How one job does: the last 24 hours, and how far it is."""

    name: str
    windows: int
    failed: int
    running: int
    rows_per_second: float | None
    seconds: float | None
    until: datetime | None
    owed: timedelta | None  # from the end of the last window that is done, until now


@dataclass(frozen=True)
class Service:
    """How the resident service does: since when, its last look, what fails."""

    since: datetime
    looked_at: datetime
    is_silent: bool
    error: str


class PipelinePage(StartingPage):
    name = "pipeline"
    route = "pipeline/"
    title = _("Pipeline")
    template_name = "ems_monitoring/pipeline.html"
    tab: ClassVar[str] = "pipeline"
    permissions = ("ems_monitoring.view_run",)
    starts: ClassVar[Mapping[str, tuple[str, int]]] = {
        "run": ("rollup", HOUR),
        "catch_up": ("rollup", 24 * HOUR),
    }

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        rows = Run.objects.using(self.using)
        failed = rows.filter(state=RunState.FAILED).order_by("-pk")[:FAILURES]
        failures = [
            {"id": run.pk, "job": run.job, "at": run.started_at, "error": run.error[-ERROR_END:]}
            for run in failed
        ]
        names = ("id", "job", "state", "since", "until", "read", "rows", "seconds", "started_at")
        return {
            "lacking": lacking(),
            "jobs": self._jobs(rows),
            "runs": list(rows.order_by("-pk").values(*names)[:RUNS]),
            "failures": failures,
            "service": self._service(rows),
            "nightly": list(newest(self.using, self.now, *AT_NIGHT)),
            "pages": self._pages(),
            "may_start": self.may_start,
        }

    def _service(self, rows: QuerySet[Run]) -> Service | None:
        """Return how the resident service does; None if none is at work."""
        newest = rows.filter(job=SERVE).order_by("-pk").first()
        if newest is None or newest.state != RunState.RUNNING or newest.until is None:
            return None
        jobs = rows.filter(at_work(self.now, *LIMITS))
        silent = self.now - newest.until > SILENT and not jobs.exists()
        return Service(newest.started_at, newest.until, silent, newest.error)

    def _pages(self) -> dict[str, str]:
        """Return the URLs of the pages of the jobs of the night that the user may see."""
        pages: dict[str, type[FiguresPage]] = {"archive": ArchivePage, "reconcile": AuditPage}
        user = self.request.user
        return {job: page.url() for job, page in pages.items() if page.is_for(user)}

    def _jobs(self, rows: QuerySet[Run]) -> list[Job]:
        recent = rows.filter(started_at__gte=self.now - DAY).order_by()
        done = Q(state=RunState.DONE)
        counted = recent.values("job").annotate(
            windows=Count("pk", filter=done),
            failed=Count("pk", filter=Q(state=RunState.FAILED)),
            running=Count("pk", filter=Q(state=RunState.RUNNING)),
            rows_read=Sum("read", filter=done),
            took=Sum("seconds", filter=done),
        )
        found = {row["job"]: row for row in counted}
        ends = rows.filter(done, job__in=JOBS).order_by().values("job").annotate(end=Max("until"))
        until = {row["job"]: row["end"] for row in ends}
        return [self._job(name, found.get(name, {}), until.get(name)) for name in JOBS]

    def _job(self, name: str, row: Mapping[str, Any], until: datetime | None) -> Job:
        took, windows = row.get("took"), row.get("windows", 0)
        return Job(
            name,
            windows,
            row.get("failed", 0),
            row.get("running", 0),
            (row.get("rows_read") or 0) / took if took else None,
            took / windows if took and windows else None,
            until,
            self.now - until if until else None,
        )

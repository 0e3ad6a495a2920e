"""Shows the runs of the Spark jobs: how far they are, how fast, how they failed; starts them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from monitoring import java, jobs
from monitoring.alarms.log import RECONCILE
from monitoring.doctor import AT_NIGHT, JOBS, LIMITS, SERVE, SILENT, at_work
from monitoring.models import AuditFinding, Run, RunState
from monitoring.pages.base import FiguresPage
from streams.admin.parts import journal
from streams.admin.parts.columns import list_url
from streams.conf import database, settings
from streams.errors import Disabled

START = "ems_monitoring.start_run"
DAY = timedelta(days=1)
# Runs, failures, and characters of the end of an error that the page shows.
RUNS, FAILURES, ERROR_END = 30, 5, 2000
# Characters of an error beside the job that has failed.
ABOUT = 200
# What the buttons do: seconds after which the job ends. It goes on where the last one has ended.
SECONDS = {"run": 3600, "catch_up": 24 * 3600}
# Whether there is Java does not change often, and a look starts a process.
LOOK_SECONDS = 60

_looked: list[tuple[float, str]] = []


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


@dataclass(frozen=True)
class Nightly:
    """How the last run of a job of the night has ended.

    ``about`` is what it has done or compared; ``looked_at`` is its end, or its beginning if it has
    none; ``findings`` counts what reconcile has found.
    """

    name: str
    state: str
    about: str
    looked_at: datetime
    findings: int
    is_killed: bool


class PipelinePage(FiguresPage):
    name = "pipeline"
    route = "pipeline/"
    title = _("Pipeline")
    template_name = "ems_monitoring/pipeline.html"
    tab: ClassVar[str] = "pipeline"
    permissions = ("ems_monitoring.view_run",)
    http_method_names = ["get", "head", "options", "post"]

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
            "nightly": list(self._nightly(rows)),
            "findings_url": self._findings_url(),
            "may_start": self.request.user.has_perm(START),
        }

    def _service(self, rows: QuerySet[Run]) -> Service | None:
        """Return how the resident service does; None if none is at work."""
        newest = rows.filter(job=SERVE).order_by("-pk").first()
        if newest is None or newest.state != RunState.RUNNING or newest.until is None:
            return None
        jobs = rows.filter(at_work(self.now, *LIMITS))
        silent = self.now - newest.until > SILENT and not jobs.exists()
        return Service(newest.started_at, newest.until, silent, newest.error)

    def _nightly(self, rows: QuerySet[Run]) -> Iterator[Nightly]:
        of_night = rows.filter(job__in=AT_NIGHT).order_by().values("job")
        newest = of_night.annotate(newest=Max("pk")).values("newest")
        for run in rows.filter(pk__in=newest).order_by("job"):
            yield Nightly(
                run.job,
                run.state,
                run.about or run.error[:ABOUT],
                run.finished_at or run.started_at,
                (run.rows or 0) if run.job == RECONCILE else 0,
                run.state == RunState.RUNNING and self.now - run.started_at > LIMITS[run.job],
            )

    def _findings_url(self) -> str:
        may = self.request.user.has_perm("ems_monitoring.view_auditfinding")
        return list_url(AuditFinding) if may else ""

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

    def post(self, request: HttpRequest, **arguments: Any) -> HttpResponse:
        """Start the roll-ups in a process of their own, which outlives the request."""
        if not request.user.has_perm(START):
            raise PermissionDenied
        verb = request.POST.get("verb", "")
        if verb in SECONDS:
            if text := lacking() if settings().ENABLED else str(Disabled()):
                self.admin.message_user(request, text, messages.ERROR)
            else:
                jobs.start("rollup", database(), seconds=SECONDS[verb])
                begun = gettext("The roll-ups have been started; their runs appear below.")
                about = gettext("roll-ups, for at most %d s") % SECONDS[verb]
                journal.note_bulk(request, Run, about, begun)
                self.admin.message_user(request, begun, messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())


def lacking() -> str:
    """Return what this host lacks for Spark jobs, as ``java.missing``; looked at once a minute."""
    now = time.monotonic()
    if not _looked or now - _looked[-1][0] > LOOK_SECONDS:
        _looked[:] = [(now, java.missing())]
    return _looked[-1][1]

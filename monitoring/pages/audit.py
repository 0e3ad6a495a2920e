"""Shows what the audits say: the verdict, what is wrong and where, and what was wrong before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from monitoring.alarms import audit
from monitoring.alarms.log import RECONCILE, is_open
from monitoring.figures.findings import means, shown
from monitoring.live.spark_jobs import own
from monitoring.models import AuditFinding, AuditPlace, AuditSource, Run, RunState
from monitoring.pages.nightly import LATE, Nightly
from monitoring.pages.starting import HOUR, StartingPage, lacking
from streams.admin.parts.columns import list_url
from streams.models import Message, Step

# In findings, and in runs.
OPEN_SHOWN, CLOSED_SHOWN, RUNS = 100, 20, 30


@dataclass(frozen=True)
class ReconcileVerdict:
    """What the last reconcile that came to its end has compared, and how many findings it has.

    ``since`` and ``until`` are the times of the oldest message and of the comparison.
    """

    at: datetime
    since: datetime | None
    until: datetime | None
    messages: int | None
    findings: int
    seconds: float | None
    about: str
    is_late: bool


@dataclass(frozen=True)
class ContinuousAudit:
    """What the continuous audit has looked at, and when it did so last."""

    at: datetime | None
    partitions: int
    cursors: int
    findings: int


class AuditPage(StartingPage):
    name = "audit"
    route = "audit/"
    title = _("Audit")
    template_name = "ems_monitoring/audit.html"
    tab: ClassVar[str] = "audit"
    permissions = ("ems_monitoring.view_auditfinding", "ems_monitoring.view_run")
    starts: ClassVar[Mapping[str, tuple[str, int]]] = {RECONCILE: (RECONCILE, 12 * HOUR)}

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        runs = Run.objects.using(self.using).filter(job=own(RECONCILE)).order_by("-pk")
        history = list(runs[:RUNS])
        done = next((run for run in history if run.state == RunState.DONE), None)
        known = AuditFinding.objects.using(self.using)
        wrong = is_open(AuditSource.AUDIT, self.using) | is_open(AuditSource.RECONCILE, self.using)
        by_source = known.filter(wrong).order_by().values_list("source")
        counts = dict(by_source.annotate(n=Count("pk")))
        order = known.order_by("-seen_at", "-pk")
        rows = [*order.filter(wrong)[:OPEN_SHOWN], *order.exclude(wrong)[:CLOSED_SHOWN]]
        findings = shown(rows, self.using)
        opened = min(OPEN_SHOWN, sum(counts.values()))
        return {
            "verdict": done and self._verdict(done),
            "run": Nightly.of(history[0], self.now) if history else None,
            "continuous": self._continuous(counts.get(AuditSource.AUDIT, 0)),
            "findings": findings[:opened],
            "findings_in_all": sum(counts.values()),
            "closed": findings[opened:],
            "means": means(findings),
            "runs": [self._run(run) for run in history],
        }

    def render(self, request: HttpRequest, figures: Mapping[str, Any]) -> HttpResponse:
        more = {
            "may_start": self.may_start,
            "lacking": lacking() if self.may_start else "",
            "may_search": self.may_view(Message),
            "findings_url": list_url(AuditFinding),
        }
        return super().render(request, {**figures, **more})

    def _verdict(self, run: Run) -> ReconcileVerdict:
        at = run.finished_at or run.started_at
        return ReconcileVerdict(
            at=at,
            since=run.since,
            until=run.until,
            messages=run.read,
            findings=run.rows or 0,
            seconds=run.seconds,
            about=run.about.rpartition(": ")[0],  # without the verdict
            is_late=self.now - at > LATE,
        )

    def _continuous(self, findings: int) -> ContinuousAudit:
        step = Step.objects.using(self.using).filter(name=audit.STEP)
        at = step.values_list("last_run_at", flat=True).first()
        places = AuditPlace.objects.using(self.using).order_by().values_list("stage")
        looked = dict(places.annotate(n=Count("pk")))
        seen = looked.get(audit.LOG, 0), looked.get(audit.GROUPS, 0)
        return ContinuousAudit(at, *seen, findings)

    def _run(self, run: Run) -> dict[str, Any]:
        is_killed = Nightly.of(run, self.now).is_killed
        names = ("id", "state", "since", "until", "read", "rows", "seconds", "started_at", "about")
        row = {name: getattr(run, name) for name in names}
        return {**row, "error": run.error[-2000:], "is_killed": is_killed}

"""Tells how the jobs of the night have ended: what each has done, or why it has not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max

from monitoring.alarms.log import RECONCILE
from monitoring.live.spark_jobs import LIMITS, own
from monitoring.models import Run, RunState

# A job of the night that has not ended for so long is not started any more.
LATE = timedelta(hours=30)
# Characters of an error beside the job that has failed.
ABOUT = 200


@dataclass(frozen=True)
class Nightly:
    """How the last run of a job of the night has ended.

    ``about`` is what it has done or compared; ``looked_at`` is its end, or its beginning if it has
    none; ``findings`` counts what reconcile has found. It ``is_late`` if it should have run again.
    """

    name: str
    state: str
    about: str
    started_at: datetime
    looked_at: datetime
    findings: int
    is_killed: bool
    is_late: bool

    @classmethod
    def of(cls, run: Run, now: datetime) -> Nightly:
        looked_at = run.finished_at or run.started_at
        is_running = run.state == RunState.RUNNING
        name = run.job.partition(" ")[0]  # without the namespace
        return cls(
            name=name,
            state=run.state,
            about=run.about or run.error[:ABOUT],
            started_at=run.started_at,
            looked_at=looked_at,
            findings=(run.rows or 0) if name == RECONCILE else 0,
            is_killed=is_running and now - run.started_at > LIMITS[name],
            is_late=not is_running and now - looked_at > LATE,
        )

    @property
    def is_at_work(self) -> bool:
        return self.state == RunState.RUNNING and not self.is_killed


def newest(using: str, now: datetime, *jobs: str) -> Iterator[Nightly]:
    """Yield the last run of each of these jobs of this namespace, by one statement."""
    rows = Run.objects.using(using)
    of_jobs = rows.filter(job__in=map(own, jobs)).order_by().values("job")
    last = of_jobs.annotate(newest=Max("pk")).values("newest")
    for run in rows.filter(pk__in=last).order_by("job"):
        yield Nightly.of(run, now)

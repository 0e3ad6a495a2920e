"""Says which jobs of Spark there are, and whether one is at work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import Error, connections
from django.db.models import Q

from monitoring.models import Run, RunState
from streams.database.clock import database_now
from streams.models.namespaces import namespace
from streams.sharding import aliases

# The jobs of sparkjobs/jobs/rollup.py, which run one after the other.
JOBS = ("traffic", "consumption", "backlog")
# The job of the rows of the resident service.
SERVE = "serve"
# What it does at night: it makes no roll-ups meanwhile.
AT_NIGHT = ("archive", "reconcile")
# No job works for longer than this: the service ends itself before. A row that is older is that of
# a process that was killed.
LIMITS = {**dict.fromkeys(JOBS, timedelta(hours=1)), **dict.fromkeys(AT_NIGHT, timedelta(hours=12))}
# The runs by which a job has got further. One that has computed the past once more has a beginning
# and no end; the first windows of a long traffic have neither.
PROGRESS = Q(state=RunState.DONE) & ~Q(since__isnull=False, until__isnull=True)
# Roll-ups are due every five minutes: after this long without one, no process makes them.
SILENT = timedelta(minutes=15)


def own(job: str) -> str:
    """Return the name of a job of the night in the runs of this namespace: each does its own."""
    return f"{job} {namespace()}" if namespace() else job


def of_any_namespace(job: str) -> Q:
    """Return the condition of the runs of a job in all namespaces; a range of ems_run_job."""
    return Q(job__gte=job, job__lt=f"{job}!")  # a blank comes before it, letters after


def at_work(now: datetime, *jobs: str) -> Q:
    """Return the condition of the runs of these jobs that are at work."""
    found = Q()
    for job in jobs:
        found |= of_any_namespace(job) & Q(started_at__gt=now - LIMITS[job])
    return found & Q(state=RunState.RUNNING)


def works(using: str, jobs: Iterable[str], lately: timedelta = timedelta(0)) -> bool:
    """Tell whether such a job is at work, or has ended ``lately``, here or on an alias with topics.

    One process does the jobs of all of them, one after the other.
    """
    names = tuple(jobs)
    for alias in aliases() if using in aliases() else (using,):
        try:
            now, runs = database_now(alias), Run.objects.using(alias)
            if runs.filter(at_work(now, *names)).exists():
                return True
            ended = runs.filter(finished_at__gt=now - lately)
            if lately and any(ended.filter(of_any_namespace(job)).exists() for job in names):
                return True
        except Error:  # another one that is away has a row of its own
            if alias == using:
                raise
            connections[alias].close_if_unusable_or_obsolete()
    return False

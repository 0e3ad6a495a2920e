"""Measures what the clock does: how late steps, the purge and the roll-ups are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.utils.translation import gettext as _

from monitoring.alarms.measured import Subject, Value, Values
from monitoring.live.spark_jobs import AT_NIGHT, JOBS, SILENT, works
from monitoring.live.steps import OVERDUE_AFTER, step_states
from monitoring.models import Run, RunState
from streams.durations import brief
from streams.models import UtcNow
from streams.models.step import PURGE

MINUTE = timedelta(minutes=1)
# Where no roll-up has ended for so long, nobody uses Spark any more, or somebody has only tried it.
USED_FOR = timedelta(days=1)
# No roll-up is late before: Celery beat makes them so seldom.
ROLLED_UP_EVERY = 5 * MINUTE
# So late that no job of the night explains it: one that was killed seems to be at work for hours.
UNEXPLAINED = timedelta(hours=3)


def step_late(using: str) -> Values:
    """Return how many of its periods ago each step last ran; unknown if it never has.

    Of the steps that the overview judges, and by the same limits.
    """
    return _late(OVERDUE_AFTER.keys() - {PURGE}, using)


def purge_late(using: str) -> Values:
    """Return the same of the nightly purge, from the end of the last one."""
    return _late({PURGE}, using)


def rollup_late(using: str) -> Values:
    """Return how many minutes ago each job of the roll-ups ended; nothing if none has for USED_FOR.

    One that has only failed is as old as its first failure. What would be late is unknown while a
    job of the night is at work, and for a while after, until it is UNEXPLAINED: one process may do
    both in turn.
    """
    # A window that counts old minutes once more has no ``until``: it is no progress.
    done = Run.objects.using(using).filter(state=RunState.DONE, until__isnull=False)
    failed = Run.objects.using(using).filter(state=RunState.FAILED)
    ended: dict[str, timedelta] = {}
    tried: dict[str, timedelta] = {}
    for job in JOBS:
        rows = done.filter(job=job).annotate(now=UtcNow()).order_by("-pk")
        if row := rows.values_list("now", "finished_at").first():
            ended[job] = row[0] - row[1]
            continue
        rows = failed.filter(job=job).annotate(now=UtcNow()).order_by("pk")
        if row := rows.values_list("now", "started_at").first():
            tried[job] = row[0] - row[1]
    if not ended or min(ended.values()) > USED_FOR:
        return {}
    late = {job: age for job, age in (ended | tried).items() if age > ROLLED_UP_EVERY}
    explained = {job for job, age in late.items() if age < UNEXPLAINED}
    unknown = explained if explained and works(using, AT_NIGHT, SILENT) else set()
    return {
        Subject(name=job): Value(None) if job in unknown else _value(age / MINUTE, age)
        for job, age in (ended | tried).items()
    }


def _late(names: Iterable[str], using: str) -> Values:
    states = {state.name: state for state in step_states(using)}
    return {Subject(name=name): _value(states[name].periods, states[name].since) for name in names}


def _value(periods: float | None, since: timedelta | None) -> Value:
    if since is None:
        return Value(None)
    return Value(periods, _("the last one was %s ago") % brief(since))

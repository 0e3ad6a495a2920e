"""Measures what the clock does: how late steps, the purge and the roll-ups are."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from monitoring.alarms.measured import Subject, Value, Values
from monitoring.models import Run, RunState
from streams.durations import brief
from streams.models import Step, UtcNow
from streams.models.step import PURGE, SEQUENCE, SWEEP

# The period of each step that every installation runs; "retries" is none, since consumers look for
# their retries themselves. A step that is due each second is late when it has not run for as long
# as one that is due each five: a busy server may take a second.
SHORTEST = timedelta(seconds=5)
STEPS = {SEQUENCE: SHORTEST, SWEEP: SHORTEST}
NIGHTLY = timedelta(days=1)
ROLLUP = timedelta(minutes=1)
# Where no roll-up has ended for so long, nobody uses Spark any more, or somebody has only tried it.
USED_FOR = timedelta(days=1)


def step_late(using: str) -> Values:
    """Return how many of its periods ago each step last ran; unknown if it never has."""
    return _late(STEPS, using)


def purge_late(using: str) -> Values:
    """Return the same of the nightly purge, from the end of the last one."""
    return _late({PURGE: NIGHTLY}, using)


def rollup_late(using: str) -> Values:
    """Return the same of the roll-ups; nothing where there was none for USED_FOR."""
    done = Run.objects.using(using).filter(job="traffic", state=RunState.DONE).order_by("-pk")
    row = done.annotate(now=UtcNow()).values_list("now", "finished_at").first()
    if row is None or row[1] is None or row[0] - row[1] > USED_FOR:
        return {}
    return {Subject(name="traffic"): _periods(row[0], row[1], ROLLUP)}


def _late(periods: dict[str, timedelta], using: str) -> Values:
    rows = Step.objects.using(using).filter(name__in=periods).annotate(now=UtcNow())
    ran = {name: (now, last) for name, now, last in rows.values_list("name", "now", "last_run_at")}
    return {
        Subject(name=name): _periods(*ran[name], period) if name in ran else Value(None)
        for name, period in periods.items()
    }


def _periods(now: datetime, last: datetime, period: timedelta) -> Value:
    return Value((now - last) / period, _("the last one was %s ago") % brief(now - last))

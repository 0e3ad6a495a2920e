"""Measures what the clock does: how late steps, the purge and the roll-ups are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.utils.translation import gettext as _

from monitoring.alarms.measured import Subject, Value, Values
from monitoring.live.steps import OVERDUE_AFTER, step_states
from monitoring.models import Run, RunState
from streams.durations import brief
from streams.models import UtcNow
from streams.models.step import PURGE

MINUTE = timedelta(minutes=1)
# Where no roll-up has ended for so long, nobody uses Spark any more, or somebody has only tried it.
USED_FOR = timedelta(days=1)


def step_late(using: str) -> Values:
    """Return how many of its periods ago each step last ran; unknown if it never has.

    Of the steps that the overview judges, and by the same limits.
    """
    return _late(OVERDUE_AFTER.keys() - {PURGE}, using)


def purge_late(using: str) -> Values:
    """Return the same of the nightly purge, from the end of the last one."""
    return _late({PURGE}, using)


def rollup_late(using: str) -> Values:
    """Return how many minutes ago a roll-up ended; nothing where there was none for USED_FOR."""
    done = Run.objects.using(using).filter(job="traffic", state=RunState.DONE).order_by("-pk")
    row = done.annotate(now=UtcNow()).values_list("now", "finished_at").first()
    if row is None or row[1] is None or row[0] - row[1] > USED_FOR:
        return {}
    return {Subject(name="traffic"): _value((row[0] - row[1]) / MINUTE, row[0] - row[1])}


def _late(names: Iterable[str], using: str) -> Values:
    states = {state.name: state for state in step_states(using)}
    return {Subject(name=name): _value(states[name].periods, states[name].since) for name in names}


def _value(periods: float | None, since: timedelta | None) -> Value:
    if since is None:
        return Value(None)
    return Value(periods, _("the last one was %s ago") % brief(since))

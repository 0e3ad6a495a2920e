"""Tells when each time-driven step ran last, and which ones are overdue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.models import Step
from streams.models.step import PURGE, SEQUENCE, SWEEP
from streams.observe.diagnoses import NOT_PURGED, SILENT

# Of the steps that every installation runs. Others are shown, and not judged: `retries` is run by
# beat alone, since consumers look for their retries themselves.
OVERDUE_AFTER = {
    SEQUENCE: SILENT,
    SWEEP: SILENT,
    PURGE: NOT_PURGED,
    "sample": timedelta(minutes=3),
}


@dataclass(frozen=True)
class StepState:
    """Holds when a step ran last; None: it never has."""

    name: str
    last_run_at: datetime | None
    since: timedelta | None
    is_overdue: bool


def step_states(using: str, now: datetime) -> list[StepState]:
    """Return the steps that are overdue, and then the others, by name."""
    rows = dict(Step.objects.using(using).values_list("name", "last_run_at"))
    states = []
    for name in {*rows, *OVERDUE_AFTER}:
        at = rows.get(name)
        since = None if at is None else max(now - at, timedelta(0))
        limit = OVERDUE_AFTER.get(name)
        overdue = limit is not None and (since is None or since > limit)
        states.append(StepState(name, at, since, overdue))
    return sorted(states, key=lambda one: (not one.is_overdue, one.name))

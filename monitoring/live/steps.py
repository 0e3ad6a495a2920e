"""Tells when each time-driven step ran last, and which ones are overdue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.models import Step, UtcNow
from streams.models.step import PURGE, SEQUENCE, SWEEP
from streams.observe.diagnoses import NOT_PURGED, SILENT

# A step is overdue after so many of its periods.
PERIODS = 3
# Of the steps that every installation runs. Others are shown, and not judged: `retries` is run by
# beat alone, since consumers look for their retries themselves. The period of one that is due each
# second is as if it was due each five: a busy server may take a second.
OVERDUE_AFTER = {
    SEQUENCE: SILENT,
    SWEEP: SILENT,
    PURGE: NOT_PURGED,
    "sample": timedelta(minutes=3),
}


@dataclass(frozen=True)
class StepState:
    """When a step ran last; None: it never has."""

    name: str
    last_run_at: datetime | None
    since: timedelta | None
    is_overdue: bool

    @property
    def periods(self) -> float | None:
        """Return how many of its periods ago a step that is judged ran last."""
        return None if self.since is None else self.since / (OVERDUE_AFTER[self.name] / PERIODS)


def step_states(using: str) -> list[StepState]:
    """Return the steps that are overdue, and then the others, by name. One statement."""
    steps = Step.objects.using(using).annotate(now=UtcNow())
    rows = steps.values_list("name", "now", "last_run_at")
    ran = {name: (at, max(now - at, timedelta(0))) for name, now, at in rows}
    states = []
    for name in {*ran, *OVERDUE_AFTER}:
        at, since = ran.get(name, (None, None))
        limit = OVERDUE_AFTER.get(name)
        overdue = limit is not None and (since is None or since > limit)
        states.append(StepState(name, at, since, overdue))
    return sorted(states, key=lambda one: (not one.is_overdue, one.name))

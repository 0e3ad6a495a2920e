"""Tells which alarms fire, for the top of the overview."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.alarms import unresolved
from monitoring.alarms.texts import summary

# In alarms: the rest is on their own page.
SHOWN = 10


@dataclass(frozen=True)
class Firing:
    """Holds an alarm that fires, as the overview shows it."""

    pk: int
    rule: str
    text: str
    severity: str  # critical, warning or info
    since: datetime
    acknowledged_by: str


def firing(using: str) -> list[Firing]:
    """Return the alarms that fire, those that need somebody first. One statement."""
    return [
        Firing(
            pk=alarm.pk,
            rule=alarm.rule,
            text=summary(alarm),
            severity=alarm.severity,
            since=alarm.since,
            acknowledged_by=alarm.acknowledged_by,
        )
        for alarm in unresolved.firing(using)[:SHOWN]
    ]

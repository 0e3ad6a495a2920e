"""Tells which alarms fire, for the top of the overview."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from monitoring.alarms.texts import summary
from monitoring.alarms.unresolved import urgent
from monitoring.models import Alarm

# In alarms: the rest is on their own page.
SHOWN = 10


@dataclass(frozen=True)
class Firing:
    """An alarm that fires, as the overview shows it."""

    pk: int
    rule: str
    severity_text: str
    text: str
    severity: str  # critical, warning or info
    since: datetime  # when the condition began, not when it had held for long enough
    acknowledged_by: str


def firing(alarms: Iterable[Alarm]) -> list[Firing]:
    """Return those of ``alarms`` that fire, those that need somebody first."""
    return [
        Firing(
            pk=alarm.pk,
            rule=alarm.rule,
            severity_text=alarm.get_severity_display(),
            text=summary(alarm),
            severity=alarm.severity,
            since=alarm.since,
            acknowledged_by=alarm.acknowledged_by,
        )
        for alarm in urgent(alarms)[:SHOWN]
    ]

"""Tells which alarms fire, for the top of the overview."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Firing:
    """Holds an alarm that fires, as the overview shows it."""

    text: str
    severity: str  # critical, warning or info
    since: datetime
    acknowledged_by: str = ""
    url: str = ""


def firing(using: str) -> list[Firing]:
    """Return the alarms that fire, those that need somebody first."""
    return []

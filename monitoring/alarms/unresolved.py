"""Reads the alarms that fire, for the pages, the banner, the doctor and the commands."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import Error, connections

from monitoring.models import Alarm, Severity
from streams.database.retrying import tables_missing

ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
# The most that a page or a list shows.
AT_MOST = 1000


def unresolved(using: str) -> list[Alarm]:
    """Return the alarms that fire or are pending, the oldest first. One statement.

    An empty list where the tables of the monitoring do not exist.
    """
    try:
        return list(Alarm.objects.using(using).unresolved().order_by("pk")[:AT_MOST])
    except Error as error:
        if not tables_missing(error):
            raise
        connections[using].close_if_unusable_or_obsolete()
        return []


def firing(using: str) -> list[Alarm]:
    """Return the alarms that fire, acknowledged or not, those that need somebody first.

    That is: not acknowledged, then by severity, then the oldest. One statement.
    """
    return urgent(unresolved(using))


def urgent(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return those of ``alarms`` that fire, in the same order."""
    rows = [row for row in alarms if row.is_firing]
    rows.sort(key=lambda row: (row.acknowledged_at is not None, ORDER[Severity(row.severity)]))
    return rows

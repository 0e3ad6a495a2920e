"""Deletes old alarms, notifications and findings, in the nightly purge."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from monitoring.models import Alarm, AlarmNotification, AuditFinding, AuditPlace
from streams.database.batches import delete_all
from streams.models import UtcNow

KEPT = timedelta(days=90)


def old_alarms(using: str) -> Iterator[int]:
    """Delete what has ended before KEPT; yield how many rows each batch has deleted."""
    since = UtcNow(-KEPT)
    notifications = AlarmNotification._base_manager.using(using)
    yield from delete_all(notifications.filter(created_at__lt=since).order_by("created_at"), using)
    resolved = Alarm._base_manager.using(using).filter(resolved_at__lt=since)
    yield from delete_all(resolved.order_by("resolved_at"), using)
    findings = AuditFinding._base_manager.using(using).filter(seen_at__lt=since)
    yield from delete_all(findings.order_by("seen_at"), using)
    # Where nothing has happened for so long, the audit begins at the end again.
    places = AuditPlace._base_manager.using(using).filter(looked_at__lt=since)
    yield from delete_all(places.order_by("pk"), using)

"""Writes alarms and channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from monitoring.models import Alarm, AlarmChannel
from tests.browser.worst.figures import ERRORS, MINUTE


def alarms(now: Any) -> None:
    hour = timedelta(hours=1)
    common = {"metric": "lag_age", "rule": "lag_age", "threshold": 600.0}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "severity": "critical",
            "topic": "orders",
            "group": "billing",
            "value": 12_000.0,
            "state": "firing",
            "fired_at": now - 3 * hour,
        },
        {
            **common,
            "severity": "critical",
            "topic": "orders",
            "group": "shipping",
            "value": 11_400.0,
            "state": "acknowledged",
            "fired_at": now - 2.9 * hour,
            "acknowledged_at": now - 2 * hour,
            "acknowledged_by": "mei",
            "note": "the carrier's API is down, they call back at 15:00",
        },
        {
            **common,
            "severity": "critical",
            "topic": "orders",
            "group": "exports",
            "value": 12_000.0,
            "state": "acknowledged",
            "fired_at": now - 2.8 * hour,
            "acknowledged_at": now - 2 * hour,
            "acknowledged_by": "mei",
            "note": "catches up since the new servers are there",
        },
        {
            "rule": "dead_new",
            "metric": "dead_new",
            "threshold": 0.0,
            "severity": "warning",
            "topic": "payments",
            "group": "ledger",
            "value": 193.0,
            "detail": ERRORS[0],
            "state": "firing",
            "fired_at": now - 2.5 * hour,
            "runbook": "https://example.com/runbooks/dead-letters",
        },
        {
            "rule": "expired",
            "metric": "expired",
            "threshold": 0.0,
            "severity": "warning",
            "topic": "mails",
            "group": "smtp",
            "value": 2.0,
            "state": "resolved",
            "fired_at": now - 9 * hour,
            "resolved_at": now - 8.8 * hour,
            "slot": None,
        },
    ]
    for row in rows:
        subject = f"{row['group']} on {row['topic']}"
        Alarm.objects.create(
            subject=subject, since=row["fired_at"] - MINUTE * 5, told_at=now, **row
        )
    AlarmChannel.objects.create(
        name="on-call",
        kind="slack",
        url="https://hooks.slack.example/services/T0/B0/secret",
        last_sent_at=timezone.now() - timedelta(minutes=4),
    )
    AlarmChannel.objects.create(
        name="tickets",
        kind="webhook",
        url="https://tickets.example.com/hook",
        last_sent_at=timezone.now() - 5 * hour,
        last_failed_at=timezone.now() - timedelta(minutes=2),
        last_error="ConnectionRefusedError: [Errno 111] Connection refused",
    )

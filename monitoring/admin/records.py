"""Registers the tables of the monitoring that people look at in rare cases."""

from __future__ import annotations

from django.contrib import admin

from monitoring.models import (
    Alarm,
    AlarmNotification,
    AuditFinding,
    AuditPlace,
    GroupSample,
    OpenDelivery,
    PartitionSample,
    ReplayedMessage,
    StagedMessage,
)
from streams.admin.pages.records import RecordAdmin

admin.site.register(
    [
        *(Alarm, AlarmNotification, AuditFinding, AuditPlace, GroupSample),
        *(OpenDelivery, PartitionSample, ReplayedMessage, StagedMessage),
    ],
    RecordAdmin,
)

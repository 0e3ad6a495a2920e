"""Registers the tables of the monitoring that people look at in rare cases."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.models import (
    Alarm,
    AlarmNotification,
    AuditFinding,
    AuditPlace,
    AuditSource,
    GroupSample,
    Mark,
    OpenDelivery,
    PartitionSample,
    ReplayedMessage,
    StagedMessage,
)
from streams.admin.pages.records import RecordAdmin
from streams.admin.parts.filters import FixedFilter


class SourceFilter(FixedFilter):
    title = _("found by")
    parameter_name = "source"
    options = AuditSource.choices


@admin.register(AuditFinding)
class AuditFindingAdmin(RecordAdmin):
    list_filter = (SourceFilter,)


admin.site.register(
    [
        *(Alarm, AlarmNotification, AuditPlace, GroupSample),
        *(Mark, OpenDelivery, PartitionSample, ReplayedMessage, StagedMessage),
    ],
    RecordAdmin,
)

"""Defines the page of the rules of alarms: changes to default rules, and rules of one's own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import ManyToManyField
from django.http import HttpRequest

from monitoring.models import AlarmChannel, AlarmRule
from streams.admin.base import StreamsAdmin
from streams.conf import database


@admin.register(AlarmRule)
class AlarmRuleAdmin(StreamsAdmin):
    per_database = False
    list_display = (
        *("name", "metric", "enabled", "threshold", "for_seconds", "severity"),
        "muted_until",
    )
    ordering = ("name",)
    fields = (
        ("name", "metric"),
        "enabled",
        ("topic", "group"),
        ("operator", "threshold", "for_seconds"),
        ("severity", "remind_hours"),
        "channels",
        "runbook",
    )

    def formfield_for_manytomany(
        self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **options: Any
    ) -> Any:
        options["queryset"] = AlarmChannel.objects.using(database()).order_by("name")
        return super().formfield_for_manytomany(db_field, request, **options)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        # Its links to channels have no permission of their own.
        return [str(row) for row in objs], {}, set(), []

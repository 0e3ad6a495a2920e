"""Defines the page of the consumption: what each client and thread has handled in a minute."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models import Consumption
from streams.admin.parts.filters import GroupFilter


@admin.register(Consumption)
class ConsumptionAdmin(RollUpAdmin):
    list_display = (
        "minute",
        "group",
        *("client_id", "thread", "deliveries", "consumed", "failed", "retried", "dead", "lost"),
        *("missing", "passed"),
        *("busy_seconds", "longest_seconds"),
    )
    list_filter = (GroupFilter,)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-client_id", "-thread")
    fields = (
        ("minute", "group"),
        ("client_id", "thread"),
        ("deliveries", "consumed", "failed", "retried", "dead"),
        ("lost", "missing", "passed"),
        ("busy_seconds", "longest_seconds"),
    )

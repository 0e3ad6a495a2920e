"""Defines the page of the consumption: what each client and thread has handled in a minute."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin, seconds
from monitoring.models import Consumption
from streams.admin.parts.columns import at, linked
from streams.admin.parts.filters import GroupFilter


@admin.register(Consumption)
class ConsumptionAdmin(RollUpAdmin):
    list_display = (
        at("minute", _("minute")),
        linked("group", _("group")),
        *("client_id", "thread", "deliveries", "consumed", "failed", "retried", "dead", "lost"),
        *("missing", "passed"),
        seconds("busy_seconds", _("busy")),
    )
    list_filter = (GroupFilter,)
    related = ("group",)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-client_id", "-thread")
    fields = (
        (at("minute", _("minute")), linked("group", _("group"))),
        ("client_id", "thread"),
        ("deliveries", "consumed", "failed", "retried", "dead"),
        ("lost", "missing", "passed"),
        seconds("busy_seconds", _("busy")),
    )

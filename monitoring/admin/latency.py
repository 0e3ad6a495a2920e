"""Defines the page of the latency: from the send to the handler, in percentiles."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin, seconds
from monitoring.models import Latency
from streams.admin.parts.columns import at, linked
from streams.admin.parts.filters import GroupFilter

TIMES = (
    seconds("mean", _("mean")),
    seconds("p50", _("median")),
    seconds("p95", _("95 %")),
    seconds("p99", _("99 %")),
    seconds("worst", _("longest")),
)


@admin.register(Latency)
class LatencyAdmin(RollUpAdmin):
    list_display = (
        at("minute", _("minute")),
        linked("group", _("group")),
        *("leg", "messages"),
        *TIMES,
    )
    list_filter = (GroupFilter,)
    related = ("group",)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-leg")
    fields = (
        (at("minute", _("minute")), linked("group", _("group"))),
        ("leg", "messages"),
        TIMES,
    )

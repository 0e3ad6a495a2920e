"""Defines the page of the latency: from the send to the handler, in percentiles."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models import Latency
from streams.admin.parts.filters import GroupFilter

TIMES = ("mean", "p50", "p95", "p99", "worst")


@admin.register(Latency)
class LatencyAdmin(RollUpAdmin):
    list_display = ("minute", "group", "leg", "messages", *TIMES)
    list_filter = (GroupFilter,)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-leg")
    fields = (("minute", "group"), ("leg", "messages"), TIMES)

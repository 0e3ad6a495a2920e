"""Defines the page of the traffic: messages and bytes of a topic, minute by minute."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models import Traffic
from streams.admin.parts.columns import messages
from streams.admin.parts.filters import PartitionFilter


@admin.register(Traffic)
class TrafficAdmin(RollUpAdmin):
    list_display = ("minute", "partition", "messages", "bytes", "keys", "delayed", messages)
    list_filter = (PartitionFilter,)
    ordering = ("-minute", "-partition_id", "-id")
    chosen_by = "partition"
    order_of_chosen = ("-partition_id", "-first_offset")
    fields = (
        ("minute", "partition"),
        ("first_offset", "end_offset", messages),
        ("messages", "bytes", "keys", "delayed"),
    )

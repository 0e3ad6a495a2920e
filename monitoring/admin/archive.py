"""Defines the pages of the archive: archived days, its ledger, and replayed messages."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models.archive import ArchivedDay, LedgerEntry
from streams.admin.parts.filters import PartitionFilter


@admin.register(ArchivedDay)
class ArchivedDayAdmin(RollUpAdmin):
    list_display = (
        *("id", "day"),
        "partition",
        *("first_offset", "end_offset", "messages", "bytes"),
        "archived_at",
    )
    list_filter = (PartitionFilter,)
    ordering = ("-id",)
    chosen_by = "partition"
    order_of_chosen = ("-partition_id", "-day")
    fields = (
        ("day", "partition"),
        ("topic", "number"),
        ("first_offset", "end_offset"),
        ("messages", "bytes", "hash"),
        ("path", "archived_at"),
    )


@admin.register(LedgerEntry)
class LedgerEntryAdmin(RollUpAdmin):
    list_display = ("id", "name", "batch", "done_at")
    ordering = ("-id",)
    fields = ("name", "batch", "done_at")

"""Defines the pages of the archive: archived days, its ledger, and replayed messages."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.models.archive import ArchivedDay, LedgerEntry
from streams.admin.parts.columns import at, linked
from streams.admin.parts.filters import PartitionFilter


@admin.register(ArchivedDay)
class ArchivedDayAdmin(RollUpAdmin):
    list_display = (
        *("id", "day"),
        linked("partition", _("partition")),
        *("first_offset", "end_offset", "messages", "bytes"),
        at("archived_at", _("archived")),
    )
    list_filter = (PartitionFilter,)
    related = ("partition",)
    ordering = ("-id",)
    chosen_by = "partition"
    order_of_chosen = ("-partition_id", "-day")
    fields = (
        ("day", linked("partition", _("partition"))),
        ("topic", "number"),
        ("first_offset", "end_offset"),
        ("messages", "bytes", "hash"),
        ("path", at("archived_at", _("archived"))),
    )


@admin.register(LedgerEntry)
class LedgerEntryAdmin(RollUpAdmin):
    list_display = ("id", "name", "batch", at("done_at", _("done")))
    ordering = ("-id",)
    fields = ("name", "batch", at("done_at", _("done")))

"""Defines the page of the cursors: where each group is in each partition."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts.columns import at, linked
from streams.admin.parts.filters import GroupFilter
from streams.models import Cursor


@admin.register(Cursor)
class CursorAdmin(ReadOnly):
    list_display = (
        "id",
        linked("group", _("group")),
        linked("partition", _("partition")),
        "replay",
        "start_offset",
        "next_offset",
        "stop_offset",
        "behind",
    )
    list_filter = (GroupFilter,)
    related = ("group", "partition")
    ordering = ("group_id", "partition_id", "replay")
    sortable_by = ()
    fields = (
        linked("group", _("group")),
        linked("partition", _("partition")),
        "replay",
        "start_offset",
        ("previous_offset", at("reset_at", _("reset"))),
        "next_offset",
        "stop_offset",
        "behind",
        "open_delivery",
        "attempt",
        at("blocked_until", _("blocked until")),
    )

    @admin.display(description=_("behind"))
    def behind(self, row: Cursor) -> int:
        """Return how many messages up to the end, of the log or the replay, are not claimed yet."""
        return row.limited(row.partition.next_offset) - row.next_offset

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.columns import at, linked
from streams.admin.filters import GroupFilter
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
        "previous_offset",
        "next_offset",
        "stop_offset",
        "behind",
        "open_delivery",
        "attempt",
        at("blocked_until", _("blocked until")),
    )

    @admin.display(description=_("behind"))
    def behind(self, row: Cursor) -> int:
        """Messages that are in the log and not claimed yet."""
        return row.partition.next_offset - row.next_offset

"""Defines the page of the cursors: where each group is in each partition."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import NAME, below, group_name, linked
from streams.admin.parts.filters import GroupFilter
from streams.models import Cursor


@admin.register(Cursor)
class CursorAdmin(ReadOnly):
    list_display = (
        "id",
        group_name,
        linked("partition", NAME),
        "replay",
        "next_offset",
        "stop_offset",
        "behind",
        "blocked",
    )
    list_filter = (GroupFilter,)
    related = ("group", "partition")
    ordering = ("group_id", "partition_id", "replay")
    sortable_by = ()
    fields = (
        "group",
        "partition",
        "replay",
        "start_offset",
        ("previous_offset", "reset_at"),
        "next_offset",
        "stop_offset",
        "behind",
        "open_delivery",
        "attempt",
        "blocked_at",
        "blocked_until",
        "last_error",
    )

    @admin.display(description=_("behind"))
    def behind(self, row: Cursor) -> str:
        """Return how many messages up to the end, of the log or the replay, are not claimed yet."""
        return figures.number(row.limited(row.partition.next_offset) - row.next_offset)

    @admin.display(description=_("state"))
    def blocked(self, row: Cursor) -> str:
        """Return which attempt of its next message an ordered group waits for, or nothing."""
        if not row.is_blocked:
            return ""
        return below(
            figures.state(gettext("blocked"), figures.BAD), gettext("attempt %d") % row.attempt
        )

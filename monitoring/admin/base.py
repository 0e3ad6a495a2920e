"""Defines what the lists of the roll-ups have in common."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import Column, column
from streams.admin.parts.filled import ListedOnceFilled
from streams.admin.parts.listing import ListReading


class RollUpAdmin(ListedOnceFilled, ReadOnly, LargeAdmin):
    """The admin of roll-ups, the newest first. There is only the permission to view them."""

    change_list_template = "admin/ems/change_list.html"
    change_form_template = "admin/ems/change_form.html"
    object_history_template = "admin/ems/object_history.html"

    # The filter by which rows are chosen, and the order in which its index gives them.
    chosen_by = "group"
    order_of_chosen: tuple[str, ...] = ("-minute", "-id")

    def reading(self, request: HttpRequest) -> ListReading:
        is_chosen = request.GET.get(self.chosen_by)
        return ListReading(self.order_of_chosen if is_chosen else self.ordering)


def share(field: str) -> Column:
    """Return a column with a share of one, in per cent."""

    @column()
    def show(row: Any) -> str:
        return f"{100 * getattr(row, field):.1f}\N{NO-BREAK SPACE}%"

    show.__name__ = field
    return show

"""Defines the page of the retries: what waits for its next attempt, and until when."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import below, group_name, linked, messages
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.admin.parts.listing import ListReading
from streams.admin.parts.search import Search
from streams.models import RetryMessage, UtcNow


class RetryState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = (
        ("waiting", _("Waiting")),
        ("due", _("Waiting, and due")),
        ("parked", _("Parked behind a message of its key")),
        ("held", _("Held by a delivery")),
    )

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "held":
            return rows.exclude(delivery=None)
        waiting = rows.filter(delivery=None)
        if value == "parked":
            return waiting.filter(due_at=None)
        return waiting.filter(due_at__lte=UtcNow()) if value == "due" else waiting


@admin.register(RetryMessage)
class RetryMessageAdmin(ReadOnly, LargeAdmin):
    list_display = (
        "id",
        group_name,
        "message",
        figures.counted("attempt"),
        "due_at",
        "held_by",
        "alone",
    )
    list_filter = (GroupFilter, RetryState)
    related = ("partition", "group")
    search_fields = ("id",)
    search_help_text = _("An id, or a place (orders/0@12).")
    fields = (
        ("id", "group", messages),
        ("attempt", "due_at", linked("delivery", description=_("held by"))),
        ("again", "alone"),
        linked("dead_letter"),
        "last_error",
    )

    @admin.display(description=_("message"))
    def message(self, row: RetryMessage) -> str:
        return below(messages(row), row.last_error)

    @admin.display(description=_("state"))
    def held_by(self, row: RetryMessage) -> str:
        """Return whether it waits, or which delivery holds it."""
        if row.delivery_id is None and row.due_at is None:
            return figures.state(gettext("parked"), figures.QUIET)
        if row.delivery_id is None:
            return figures.state(gettext("waiting"), figures.WARNING)
        return below(figures.state(gettext("in hand")), gettext("delivery %d") % row.delivery_id)

    def reading(self, request: HttpRequest) -> ListReading:
        search = self.search(request)
        if search.text:
            return ListReading(is_bounded=not search.place, always=search.id_match)
        group, state = request.GET.get("group"), request.GET.get("state")
        if group:
            # In the order of the index (group, delivery, due_at): waiting ones, next due first.
            return ListReading(("delivery_id", "due_at", "id"))
        return ListReading(is_bounded=bool(state))

    def found(self, search: Search) -> Q:
        nothing = Q(pk__in=())
        at_place = search.place.of_groups if search.place else None
        return search.matches(nothing, at_place)

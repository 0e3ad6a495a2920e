from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.columns import at, column, linked, list_url, short
from streams.admin.filters import FixedFilter, GroupFilter
from streams.admin.listing import Reading
from streams.admin.search import Search
from streams.models import Delivery, Kind, Message, State


class DeliveryState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = State.choices


class DeliveryKind(FixedFilter):
    title = _("kind")
    parameter_name = "kind"
    options = Kind.choices


@column(_("offsets"))
def offsets(row: Delivery) -> str:
    """With a link to the messages."""
    span = str(row.first_offset)
    if row.last_offset > row.first_offset:
        span += f"-{row.last_offset}"
    text = f"{row.partition}@{span}"
    return format_html('<a href="{}">{}</a>', list_url(Message, q=text), text)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly, LargeAdmin):
    list_display = (
        "id",
        linked("group", _("group")),
        offsets,
        "kind",
        "attempt",
        "state",
        "failed",
        "dead",
        "missing",
        "client_id",
        "thread",
        at("claimed_at", _("claimed")),
        at("finished_at", _("finished")),
        short("error", _("error")),
    )
    list_filter = (GroupFilter, DeliveryState, DeliveryKind)
    related = ("partition", "group")
    search_fields = ("id", "client_id")
    search_help_text = _("An id, a place (orders/0@12), or the beginning of a client's id.")
    fields = (
        "id",
        linked("group", _("group")),
        offsets,
        "progress",
        "kind",
        "attempt",
        "state",
        "client_id",
        "thread",
        at("claimed_at", _("claimed")),
        at("started_at", _("started")),
        at("deadline", _("deadline")),
        at("finished_at", _("finished")),
        "failed",
        "dead",
        "missing",
        "error",
    )

    def reading(self, request: HttpRequest) -> Reading:
        search = self.search(request)
        group, state, kind = (request.GET.get(name) for name in ("group", "state", "kind"))
        if search.place:
            return Reading()
        if search.is_text or kind or (state and state != State.START):
            return Reading(bounded_by="id", always=search.id_match)
        # The open ones are few, and have an index; a group's are in the order of its log.
        if group and not state:
            return Reading(("-partition_id", "-first_offset", "-id"))
        return Reading()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        search = Search.parse(search_term)
        if not search.text:
            return queryset, False
        covering = search.place.deliveries if search.place else None
        found = search.matches(Q(client_id__startswith=search.text), covering)
        return queryset.filter(found), False

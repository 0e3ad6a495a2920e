"""Defines the page of the deliveries: what was claimed, by whom, and how it ended."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import at, column, linked, messages, short
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.admin.parts.listing import Reading
from streams.admin.parts.search import Search
from streams.models import Delivery, Kind, State


class DeliveryState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = (
        (State.START.value, _("Open")),
        (State.DONE.value, _("Done")),
        (State.RETRY.value, _("With failures")),
        (State.RELEASED.value, _("Released")),
        (State.SKIPPED.value, _("Skipped")),
    )


class DeliveryKind(FixedFilter):
    title = _("kind")
    parameter_name = "kind"
    options = Kind.choices


def outcome(row: Delivery) -> str:
    """Return what became of the offsets of the delivery, as a text."""
    if row.state == State.START:
        return _t("open")
    count = row.last_offset - row.first_offset + 1
    numbers = (
        (row.failed, _t("failed")),
        (row.dead, _t("dead")),
        (row.missing, _t("missing")),
        (row.passed, _t("passed over")),
    )
    parts = [what if count == 1 else f"{n} / {count} {what}" for n, what in numbers if n]
    if not row.failed and row.state == State.RETRY:
        parts.append(_t("lost: its consumer died, or took too long"))
    return ", ".join(parts) or str(row.get_state_display()).lower()


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly, LargeAdmin):
    list_display = (
        "id",
        linked("group", _("group")),
        messages,
        column(_("outcome"))(outcome),
        "kind",
        "attempt",
        at("claimed_at", _("claimed")),
        at("finished_at", _("finished")),
        "client_id",
        "thread",
        short("error", _("error")),
    )
    list_filter = (GroupFilter, DeliveryState, DeliveryKind)
    related = ("partition", "group")
    search_fields = ("id", "client_id")
    search_help_text = _("An id, a place (orders/0@12), or the beginning of a client's id.")
    fields = (
        ("id", linked("group", _("group")), messages),
        ("kind", "attempt"),
        ("client_id", "thread"),
        (at("claimed_at", _("claimed")), at("started_at", _("started"))),
        (at("finished_at", _("finished")), at("deadline", _("deadline"))),
        ("state", "progress"),
        ("failed", "dead", "missing"),
        "error",
    )

    def reading(self, request: HttpRequest) -> Reading:
        search = self.search(request)
        group, state, kind = (request.GET.get(name) for name in ("group", "state", "kind"))
        if search.place:
            return Reading()
        if search.is_text or kind or (state and state != State.START):
            return Reading(is_bounded=True, always=search.id_match)
        # Open deliveries are few, and have an index; those of a group are in the order of its log.
        if group and not state:
            return Reading(("-partition_id", "-first_offset", "-id"))
        return Reading()

    def found(self, search: Search) -> Q:
        covering = search.place.deliveries if search.place else None
        return search.matches(Q(client_id__startswith=search.text), covering)

"""Defines the page of the deliveries: what was claimed, by whom, and how it ended."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import below, group_name, messages
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.admin.parts.listing import ListReading
from streams.admin.parts.search import Search
from streams.models import Delivery, Kind, State

STATES = {
    State.START: _("open"),
    State.DONE: _("done"),
    State.RETRY: _("failed"),
    State.RELEASED: _("released"),
    State.SKIPPED: _("skipped"),
}


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
        return gettext("open") if row.token else gettext("given back")
    count = row.last_offset - row.first_offset + 1
    numbers = (
        (row.failed, gettext("failed")),
        (row.dead, gettext("dead")),
        (row.missing, gettext("missing")),
        (row.passed, gettext("passed over")),
    )
    parts = [what if count == 1 else f"{n} / {count} {what}" for n, what in numbers if n]
    if not row.failed and row.state == State.RETRY:
        parts.append(gettext("lost: its consumer died, or took too long"))
    return ", ".join(parts) or str(row.get_state_display()).lower()


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly, LargeAdmin):
    list_display = ("id", group_name, "claim", "ended", "claimed_at", "took", "client")
    list_filter = (GroupFilter, DeliveryState, DeliveryKind)
    related = ("partition", "group")
    search_fields = ("id", "client_id")
    search_help_text = _("An id, a place (orders/0@12), or the beginning of a client's id.")
    fields = (
        ("id", "group", messages),
        ("kind", "attempt"),
        ("client_id", "thread"),
        ("claimed_at", "started_at"),
        ("finished_at", "deadline"),
        ("state", "progress"),
        ("failed", "dead", "missing"),
        "error",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("errors")

    @admin.display(description=_("messages"))
    def claim(self, row: Delivery) -> str:
        return below(messages(row), row.error)

    @admin.display(description=_("outcome"))
    def ended(self, row: Delivery) -> str:
        if row.state == State.START:
            level = figures.QUIET
        elif row.state == State.RETRY or row.dead or row.missing:
            level = figures.BAD
        else:
            level = figures.GOOD if row.state == State.DONE else figures.QUIET
        kind = "" if row.kind == Kind.NEW else str(row.get_kind_display()).lower()
        word = str(STATES[State(row.state)])
        text = outcome(row)
        tried = gettext("attempt %d") % row.attempt if row.attempt > 1 else ""
        more = [tried, kind, "" if text == word else text]
        return below(figures.state(word, level), ", ".join(one for one in more if one))

    @admin.display(description=_("took"))
    def took(self, row: Delivery) -> str:
        """Return how long the handler calls of all its messages took."""
        begun, ended = row.started_at, row.finished_at
        return figures.age_of(figures.took(ended - begun if begun and ended else None))

    @admin.display(description=_("client"))
    def client(self, row: Delivery) -> str:
        return below(figures.titled(row.client_id, 20), figures.shortened(row.thread, 22))

    def reading(self, request: HttpRequest) -> ListReading:
        search = self.search(request)
        group, state, kind = (request.GET.get(name) for name in ("group", "state", "kind"))
        if search.place:
            return ListReading()
        if search.is_text or kind or (state and state != State.START):
            return ListReading(is_bounded=True, always=search.id_match)
        # Open deliveries are few, and have an index; those of a group are in the order of its log.
        if group and not state:
            return ListReading(("-partition_id", "-first_offset", "-id"))
        return ListReading()

    def found(self, search: Search) -> Q:
        covering = search.place.deliveries if search.place else None
        return search.matches(Q(client_id__startswith=search.text), covering)

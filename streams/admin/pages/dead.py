"""Defines the page of the dead letters: to read, redrive or discard them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from streams.admin.bodies import BodyAdmin
from streams.admin.parts import journal
from streams.admin.parts.columns import SHORT, at, linked, list_url, messages, short
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.admin.parts.listing import Reading
from streams.admin.parts.search import Search
from streams.admin.verbs.bulk import Bulk
from streams.consume.outcome.dead_letter import redrive
from streams.models import DeadMessage

REDRIVE = Bulk(
    name="redrive",
    verb=redrive,
    title=_("Redrive dead letters"),
    what=_("%s will be handed to their groups again, from the first attempt."),
    skips=_("redriven already, or gone"),
    done=_("Redriven"),
)
DISCARD = Bulk(
    name="discard",
    verb=DeadMessage.discard,
    title=_("Discard dead letters"),
    what=_("%s will be deleted, with their copies of the bodies. This cannot be undone."),
    skips=_("redriven, or gone"),
    done=_("Discarded"),
    flag=journal.DELETION,
    typed=True,
)


class DeadState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = (("waiting", _("Waiting")), ("redriven", _("Redriven")))

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(redriven_at__isnull=value == "waiting")


@admin.register(DeadMessage)
class DeadMessageAdmin(BodyAdmin):
    list_display = (
        "id",
        linked("group", _("group")),
        messages,
        short("key", _("key")),
        "failure",
        "attempts",
        at("died_at", _("died")),
        at("redriven_at", _("redriven")),
    )
    list_filter = (GroupFilter, DeadState)
    related = ("partition", "group")
    searched = 20_000  # fewer, since the rows are large: body and traceback
    search_fields = ("id", "message_id", "key", "error_class")
    search_help_text = _("An id, a place (orders/0@12), a whole key, or a class of error.")
    fields = (
        ("id", linked("group", _("group")), messages),
        ("key", "tag"),
        "headers",
        ("producer", at("sent_at", _("sent"))),
        ("body_type", "size"),
        ("attempts", at("died_at", _("died")), at("redriven_at", _("redriven"))),
        "error_class",
        "error",
    )
    actions = ("redrive", "discard")
    verbs = {"redrive": _("Redrive …"), "discard": _("Discard …")}

    @admin.action(permissions=["redrive"], description=_("Redrive …"))
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return REDRIVE.respond(self, request, queryset)

    @admin.action(permissions=["discard"], description=_("Discard …"))
    def discard(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return DISCARD.respond(self, request, queryset)

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.redrive_deadmessage")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.discard_deadmessage")

    def possible_verbs(self, row: DeadMessage) -> Mapping[str, Any]:
        return self.verbs if row.redriven_at is None else {}

    @admin.display(description=_("error"))
    def failure(self, row: DeadMessage) -> str:
        """Return the class of the error, linked to the letters with the same one, and its text."""
        url = list_url(DeadMessage, q=row.error_class)
        name = row.error_class.rpartition(".")[2]
        text = Truncator(row.error).chars(SHORT)
        return format_html('<a href="{}">{}</a>: {}', url, name, text)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("body", "headers", "traceback")

    def reading(self, request: HttpRequest) -> Reading:
        search = self.search(request)
        if search.place:
            return Reading()
        if search.is_text:
            return Reading(is_bounded=True, always=search.id_match)
        # An index has the waiting letters of a group, but none has them by state alone.
        state_alone = request.GET.get("state") and not request.GET.get("group")
        return Reading(is_bounded=bool(state_alone))

    def found(self, search: Search) -> Q:
        text = Q(key=search.text) | Q(error_class=search.text)
        if search.pk is not None:
            text |= Q(message_id=search.pk)
        at_place = search.place.of_groups if search.place else None
        return search.matches(text, at_place)

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from streams.admin.bodies import BodyAdmin
from streams.admin.columns import UNKNOWN, at, instant, place, short
from streams.admin.filters import FixedFilter, PartitionFilter, number
from streams.admin.listing import Reading
from streams.admin.search import Search
from streams.conf import database
from streams.models import IMMEDIATE, Message, Partition, UtcNow
from streams.trace import trace


class MessageState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = (
        ("log", _("In the log")),
        ("inbox", _("In the inbox")),
        ("delayed", _("Delayed")),
        ("prepared", _("Prepared")),
    )

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "log":
            return rows.exclude(offset=None)
        waiting = rows.filter(offset=None)
        if value == "delayed":
            return waiting.filter(due_at__gt=UtcNow())
        return waiting.filter(due_at=None) if value == "prepared" else waiting


@admin.register(Message)
class MessageAdmin(BodyAdmin):
    list_display = (
        "id",
        place,
        short("key", _("key")),
        "tag",
        "size",
        at("created_at", _("sent")),
        at("sequenced_at", _("sequenced")),
        "producer",
    )
    list_filter = (PartitionFilter, MessageState)
    related = ("partition",)
    search_fields = ("id", "key")
    search_help_text = _("An id, a place (orders/0@12 or orders/0@12-20), or a whole key.")
    fields = (
        ("id", place),
        ("key", "tag"),
        "headers",
        ("host", "process", "thread"),
        (at("created_at", _("sent")), "due", at("sequenced_at", _("sequenced"))),
        ("body_type", "size"),
    )

    @admin.display(description=_("producer's host"))
    def host(self, row: Message) -> str:
        return row.producer.split("@", 2)[0]

    @admin.display(description=_("process id"))
    def process(self, row: Message) -> str:
        return _part(row.producer, 1)

    @admin.display(description=_("thread"))
    def thread(self, row: Message) -> str:
        return _part(row.producer, 2)

    @admin.display(description=_("due"))
    def due(self, row: Message) -> str:
        if row.due_at is None:
            return _t("not before it is released: it is only prepared")
        return _t("at once") if row.due_at == IMMEDIATE else instant(row.due_at)

    def reading(self, request: HttpRequest) -> Reading:
        search = self.search(request)
        partition, state = request.GET.get("partition"), request.GET.get("state")
        in_log = state in (None, "log")
        if search.is_text:
            if partition and in_log:
                return Reading(("-offset", "-id"), "offset", search.id_match)
            return Reading(bounded_by="id", always=search.id_match)
        if search.place:
            return Reading(("-offset", "-id"))
        if partition:
            # The log from its end, or the inbox in the order in which it is due.
            return Reading(("-offset", "-id") if in_log else ("due_at", "id"))
        return Reading(bounded_by="id" if state else "")

    def newest(self, request: HttpRequest, column: str) -> int:
        if column == "id":
            return super().newest(request, column)
        partition = number(request.GET["partition"]) or 0
        chosen = Partition.objects.using(database()).filter(pk=partition)
        end = chosen.values_list("next_offset", flat=True).first()
        return max(0, (end or 0) - 1)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        search = Search.parse(search_term)
        if not search.text:
            return queryset, False
        at_place = search.place.messages if search.place else None
        return queryset.filter(search.matches(Q(key=search.text), at_place)), False

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["trace"] = trace(kwargs["obj"])
        return super().render_change_form(request, context, *args, **kwargs)


def _part(producer: str, index: int) -> str:
    parts = producer.split("@", 2)
    return parts[index] if index < len(parts) else UNKNOWN

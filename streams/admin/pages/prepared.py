"""Defines the page of the prepared messages: who waits, and an operator's decision."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.bodies import BodyAdmin
from streams.admin.parts import figures
from streams.admin.parts.columns import list_url, short
from streams.admin.parts.figures import UNKNOWN
from streams.admin.parts.filters import CHOICES_AT_MOST, FixedFilter
from streams.admin.parts.listing import ListReading
from streams.admin.parts.search import Search
from streams.conf import database
from streams.models import CheckEndpoint, Message, PreparedRow, PreparedState
from streams.models.prepared import UNFINISHED
from streams.sharding import home_of

LEVELS = {
    PreparedState.PREPARED: figures.GOOD,
    PreparedState.COMMITTED: figures.WARNING,
    PreparedState.SENT: figures.QUIET,
    PreparedState.UNSENT: figures.BAD,
    PreparedState.ROLLED_BACK: figures.QUIET,
    PreparedState.MANUAL: figures.BAD,
}


class PreparedStateFilter(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = PreparedState.choices


class TextFilter(admin.SimpleListFilter):
    """A filter by a text; the list of choices is short, and the URL accepts every value."""

    template = "admin/ems/filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(text, text) for text in self.texts()]

    def texts(self) -> list[str]:
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(**{str(self.parameter_name): value})


class BizFilter(TextFilter):
    title = _("business")
    parameter_name = "biz"

    def texts(self) -> list[str]:
        return businesses()


class CheckerFilter(TextFilter):
    title = _("checker")
    parameter_name = "checker"

    def texts(self) -> list[str]:
        rows = PreparedRow.objects.using(database()).filter(state__in=UNFINISHED).order_by()
        waiting = rows.values_list("checker", flat=True).distinct()[:CHOICES_AT_MOST]
        names = CheckEndpoint.objects.using(home_of(database())).values_list("name", flat=True)
        return sorted({*waiting, *names})


def businesses() -> list[str]:
    """Return the names of the businesses; the unique index gives them without its entries."""
    rows = PreparedRow.objects.using(database()).order_by("biz").values_list("biz", flat=True)
    return list(rows.distinct()[:CHOICES_AT_MOST])


@admin.register(PreparedRow)
class PreparedAdmin(BodyAdmin):
    list_display = (
        short("biz", 20),
        short("biz_key", 24),
        "now",
        short("topic", 24),
        "created_at",
        figures.counted("checks"),
        "next_at",
        short("last_answer", 8),
        short("decided_by", 24),
    )
    list_filter = (PreparedStateFilter, BizFilter, CheckerFilter)
    search_fields = ("biz_key",)
    search_help_text = _("A whole key, or business:key.")
    fields = (
        ("id", "biz", "biz_key"),
        ("now", "created_at", "producer"),
        ("topic", "partition", "key", "tag"),
        "headers",
        ("checker", figures.counted("checks"), "next_at"),
        ("last_answer", "checked_at"),
        "the_context",
        "last_error",
        ("decided_at", "decided_by", "disputed_at"),
        ("the_message", "sent_at", figures.counted("sends")),
        ("body_type", "size"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("body", "headers", "context")

    def reading(self, request: HttpRequest) -> ListReading:
        # The indexes: (state, checker, next_at) for the few that are not done, (biz, biz_key).
        if request.GET.get("q"):
            return ListReading()
        state = request.GET.get("state")
        if state in UNFINISHED:
            return ListReading(("checker", "next_at", "id"))
        if request.GET.get("biz") and not state:
            return ListReading(("biz_key",), is_bounded=bool(request.GET.get("checker")))
        return ListReading(is_bounded=bool(state or request.GET.get("checker")))

    def found(self, search: Search) -> Q:
        biz, _colon, key = search.text.partition(":")
        return Q(biz=biz, biz_key=key) | Q(biz__in=businesses(), biz_key=search.text)

    @admin.display(description=_("state"))
    def now(self, row: PreparedRow) -> str:
        if row.is_disputed:
            return figures.state(gettext("Rolled back by a check, then committed"), figures.BAD)
        state = PreparedState(row.state)
        return figures.state(state.label, LEVELS[state])

    @admin.display(description=_("context"))
    def the_context(self, row: PreparedRow) -> str:
        return UNKNOWN if row.context is None else json.dumps(row.context, ensure_ascii=False)

    @admin.display(description=_("message"))
    def the_message(self, row: PreparedRow) -> str:
        if row.message_id is None:
            return UNKNOWN
        url = list_url(Message, q=row.message_id)
        return format_html('<a href="{}">{}</a>', url, str(row.message_id))

"""Defines the page of the consumers: each process, and the groups that it serves."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import at, linked, list_url
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.models import Consumer, Delivery, UtcNow


class Lease(FixedFilter):
    title = _("lease")
    parameter_name = "lease"
    options = (("live", _("Live")), ("lapsed", _("Lapsed")))

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        live = {"lease_until__gte": UtcNow()}
        return rows.filter(**live) if value == "live" else rows.exclude(**live)


@admin.register(Consumer)
class ConsumerAdmin(ReadOnly):
    """Shows the consumer processes, with one row for each of their groups."""

    list_display = (
        "id",
        "host",
        "process",
        linked("group", _("group"), 44),
        "is_live",
        at("started_at", _("started")),
        at("lease_until", _("lease until")),
        "deliveries",
    )
    list_filter = (GroupFilter, Lease)
    related = ("group",)
    ordering = ("client_id", "id")
    sortable_by = ()
    search_fields = ("client_id",)
    search_help_text = _("A part of the client's id: host@process@…")
    fields = (
        ("client_id", linked("group", _("group"))),
        ("is_live", at("started_at", _("started")), at("lease_until", _("lease until"))),
        "deliveries",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # The database's clock decides who is live.
        rows = super().get_queryset(request)
        timed: QuerySet[Any] = rows.annotate(now=UtcNow())
        return timed

    @admin.display(description=_("host"))
    def host(self, row: Consumer) -> str:
        return row.client_id.partition("@")[0]

    @admin.display(description=_("process id"))
    def process(self, row: Consumer) -> str:
        return row.client_id.partition("@")[2].partition("@")[0]

    @admin.display(description=_("state"))
    def is_live(self, row: Any) -> str:
        if row.lease_until >= row.now:
            return figures.state(_("live"), figures.GOOD)
        return figures.state(_("lapsed"), figures.BAD)

    @admin.display(description=_("deliveries"))
    def deliveries(self, row: Consumer) -> Any:
        return format_html('<a href="{}">{}</a>', list_url(Delivery, q=row.client_id), _("show"))

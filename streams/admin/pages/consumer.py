"""Defines the page of the consumers: each process, and the groups that it serves."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import linked, list_url, messages
from streams.admin.parts.filters import FixedFilter, GroupFilter
from streams.conf import database
from streams.log.calls import Call, calls
from streams.models import Consumer, Delivery, UtcNow
from streams.observe.producers import who_is

# In claims: the oldest.
SHOWN = 50


class Lease(FixedFilter):
    title = _("lease")
    parameter_name = "lease"
    options = (("live", _("Live")), ("lapsed", _("Lapsed")))

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        live = {"lease_until__gte": UtcNow()}
        return rows.filter(**live) if value == "live" else rows.exclude(**live)


@admin.register(Consumer)
class ConsumerAdmin(ReadOnly):
    """The consumer processes, with one row for each of their groups."""

    list_display = (
        "id",
        "host",
        "process",
        linked("group", 44),
        "is_live",
        "started_at",
        "lease_until",
        "deliveries",
    )
    list_filter = (GroupFilter, Lease)
    related = ("group",)
    ordering = ("client_id", "id")
    sortable_by = ()
    search_fields = ("client_id",)
    search_help_text = _("A part of the client's id: host@process@…")
    fields = (
        ("client_id", "group"),
        ("is_live", "started_at", "lease_until"),
        ("away_since", "away_reason"),
        "calls",
        "deliveries",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # The database's clock decides who is live.
        rows = super().get_queryset(request)
        timed: QuerySet[Any] = rows.annotate(now=UtcNow())
        return timed

    @admin.display(description=_("host"))
    def host(self, row: Consumer) -> str:
        return who_is(row.client_id)[0]

    @admin.display(description=_("process id"))
    def process(self, row: Consumer) -> str:
        return who_is(row.client_id)[1]

    @admin.display(description=_("state"))
    def is_live(self, row: Any) -> str:
        if row.lease_until >= row.now:
            return figures.state(_("live"), figures.GOOD)
        return figures.state(_("lapsed"), figures.BAD)

    @admin.display(description=_("running calls"))
    def calls(self, row: Any) -> Any:
        """Return what the client has in hand for the group, the longest first."""
        held = Delivery.objects.using(database()).held().select_related("partition__topic")
        mine = held.filter(client_id=row.client_id, group=row.group_id).order_by("claimed_at")
        deliveries = list(mine[:SHOWN])
        found = zip(deliveries, calls(deliveries, row.now, database()), strict=True)
        rows = [
            (
                *(gettext("Messages"), messages(delivery)),
                *(gettext("Running"), running(call)),
                *(gettext("Usual"), figures.age_of(figures.took(call.usual))),
                *(gettext("Thread"), call.thread),
                *(gettext("Attempt"), call.attempt),
                *(gettext("Deadline"), deadline(call)),
            )
            for delivery, call in found
        ]
        if not rows:
            return gettext("none")
        heads = format_html_join("", '<th scope="col">{}</th>', ((one,) for one in rows[0][::2]))
        cell = '<td data-label="{}">{}</td>'
        lines = format_html_join("", f"<tr>{cell * 6}</tr>", rows)
        table = (
            '<table class="ems-table ems-cards"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        )
        return format_html(table, heads, lines)

    @admin.display(description=_("deliveries"))
    def deliveries(self, row: Consumer) -> Any:
        return format_html('<a href="{}">{}</a>', list_url(Delivery, q=row.client_id), _("show"))


def running(call: Call) -> str:
    """Return since when the client has it in hand, and that this is long."""
    slow = figures.state(gettext("slow"), figures.BAD) if call.is_slow else ""
    return format_html("{} {}", figures.age(call.running), slow)


def deadline(call: Call) -> str:
    if call.is_overdue:
        return figures.state(gettext("overdue"), figures.BAD)
    return format_html("{} {}", gettext("in"), figures.age(call.left))

"""Defines the page of the redrives at a rate: how far they are."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import short
from streams.models import Redrive, RedriveState

LEVELS = {
    RedriveState.RUNNING: figures.GOOD,
    RedriveState.STOPPED: figures.WARNING,
    RedriveState.DONE: figures.QUIET,
}


@admin.register(Redrive)
class RedriveAdmin(ReadOnly, LargeAdmin):
    list_display = (
        "id",
        short("about", 40),
        "progress",
        "now",
        "per_second",
        "time_left",
        "who",
        "created_at",
    )
    fields = (
        ("id", short("about", 200)),
        ("now", "progress", "per_second", "time_left"),
        (figures.counted("done"), figures.counted("skipped")),
        ("who", "created_at", "finished_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("ids")

    @admin.display(description=_("progress"))
    def progress(self, row: Redrive) -> str:
        """Return a bar, and how many of how many; without a count only how many."""
        seen = figures.grouped(row.done + row.skipped)
        if row.total is None:
            return seen
        values = {"seen": seen, "total": figures.grouped(row.total)}
        text = gettext("%(seen)s of %(total)s") % values
        bar = '<progress class="ems-short" max="{}" value="{}" aria-hidden="true"></progress> {}'
        return format_html(bar, str(row.total), str(row.done + row.skipped), text)

    @admin.display(description=_("state"))
    def now(self, row: Redrive) -> str:
        state = RedriveState(row.state)
        return figures.state(state.label, LEVELS[state])

    @admin.display(description=_("a second"))
    def per_second(self, row: Redrive) -> str:
        return row.per_second

    @admin.display(description=_("time left"))
    def time_left(self, row: Redrive) -> str:
        return figures.age(row.time_left)

"""Defines the page of the backlog: how far each group was behind, minute by minute."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin, seconds
from monitoring.models import Backlog
from streams.admin.parts.columns import at, column, linked
from streams.admin.parts.figures import UNKNOWN
from streams.admin.parts.filters import GroupFilter


@column(_("a minute"))
def trend(row: Any) -> str:
    return UNKNOWN if row.trend is None else f"{row.trend:+,.1f}"


@admin.register(Backlog)
class BacklogAdmin(RollUpAdmin):
    list_display = (
        at("minute", _("minute")),
        linked("group", _("group")),
        *("behind", "open", "waiting", "dead"),
        seconds("age_seconds", _("age")),
        trend,
        seconds("clear_seconds", _("time to clear")),
    )
    list_filter = (GroupFilter,)
    related = ("group",)
    ordering = ("-minute", "-id")
    order_of_chosen = ("-minute", "-group_id")
    fields = (
        (at("minute", _("minute")), linked("group", _("group"))),
        ("behind", "open", "waiting", "dead"),
        seconds("age_seconds", _("age")),
        (trend, seconds("clear_seconds", _("time to clear"))),
    )

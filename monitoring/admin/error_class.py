"""Defines the page of the error classes: what handlers raised, and how often."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.models import ErrorClass
from streams.admin.parts.columns import at, linked
from streams.admin.parts.filters import GroupFilter


@admin.register(ErrorClass)
class ErrorClassAdmin(RollUpAdmin):
    list_display = (
        at("minute", _("minute")),
        linked("group", _("group")),
        *("error_class", "failed", "dead"),
    )
    list_filter = (GroupFilter,)
    related = ("group",)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-error_class")
    fields = (
        (at("minute", _("minute")), linked("group", _("group"))),
        ("error_class", "failed", "dead"),
    )

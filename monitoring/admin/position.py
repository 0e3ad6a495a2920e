"""Defines the page of the positions: how far each job has read."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.models import Position
from streams.admin.parts.columns import linked


@admin.register(Position)
class PositionAdmin(RollUpAdmin):
    list_display = ("pk", linked("partition", _("partition")), "open_offset", "next_offset")
    related = ("partition",)
    ordering = ("pk",)
    fields = (linked("partition", _("partition")), "open_offset", "next_offset")

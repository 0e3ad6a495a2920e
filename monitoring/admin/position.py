"""Defines the page of the positions: how far each job has read."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models import Position


@admin.register(Position)
class PositionAdmin(RollUpAdmin):
    list_display = ("pk", "partition", "open_offset", "next_offset")
    ordering = ("pk",)
    fields = ("partition", "open_offset", "next_offset")

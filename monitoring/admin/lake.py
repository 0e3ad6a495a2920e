"""Defines the pages of the lake: its files, and how far each partition is in it."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.models.lake import LakeFile, LakePosition
from streams.admin.parts.columns import at, linked


@admin.register(LakeFile)
class LakeFileAdmin(RollUpAdmin):
    list_display = (
        *("id", "day", "topic", "messages", "bytes", "size"),
        at("added_at", _("added")),
        at("retired_at", _("retired")),
    )
    ordering = ("-id",)
    fields = (
        ("day", "topic"),
        "path",
        ("messages", "bytes", "size", "version"),
        (at("added_at", _("added")), at("retired_at", _("retired"))),
    )


@admin.register(LakePosition)
class LakePositionAdmin(RollUpAdmin):
    list_display = ("pk", linked("partition", _("partition")), "first_offset", "next_offset")
    related = ("partition",)
    ordering = ("pk",)
    fields = (linked("partition", _("partition")), "first_offset", "next_offset")

"""Defines the pages of the lake: its files, and how far each partition is in it."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models.lake import LakeFile, LakePosition


@admin.register(LakeFile)
class LakeFileAdmin(RollUpAdmin):
    list_display = ("id", "day", "topic", "messages", "bytes", "size", "added_at", "retired_at")
    ordering = ("-id",)
    fields = (
        ("day", "topic"),
        "path",
        ("messages", "bytes", "size", "version"),
        ("added_at", "retired_at"),
    )


@admin.register(LakePosition)
class LakePositionAdmin(RollUpAdmin):
    list_display = ("pk", "partition", "first_offset", "next_offset")
    ordering = ("pk",)
    fields = ("partition", "first_offset", "next_offset")

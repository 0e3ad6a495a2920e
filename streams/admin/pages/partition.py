"""Defines the page of the partitions: which offsets each one holds."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import linked, list_url
from streams.models import Message, Partition


@admin.register(Partition)
class PartitionAdmin(ReadOnly):
    list_display = (
        "id",
        linked("topic", 44),
        "number",
        "first_offset",
        "next_offset",
        "kept",
        "last_sequenced_at",
        "messages",
    )
    related = ("topic",)
    ordering = ("topic__name", "number")
    sortable_by = ()
    search_fields = ("topic__name",)
    search_help_text = _("A part of a topic's name.")
    fields = (
        "topic",
        "number",
        "first_offset",
        "next_offset",
        "kept",
        "last_sequenced_at",
        "messages",
    )

    @admin.display(description=_("kept"))
    def kept(self, row: Partition) -> str:
        return figures.number(row.next_offset - row.first_offset)

    @admin.display(description=_("messages"))
    def messages(self, row: Partition) -> Any:
        log = list_url(Message, partition=row.pk)
        inbox = list_url(Message, partition=row.pk, state="inbox")
        links = ((log, gettext("log")), (inbox, gettext("inbox")))
        return format_html_join(" · ", '<a href="{}">{}</a>', links)

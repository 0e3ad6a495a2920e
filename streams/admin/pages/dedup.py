"""The page of the dedup keys that are in force."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import at, linked
from streams.models import DedupKey


@admin.register(DedupKey)
class DedupKeyAdmin(ReadOnly, LargeAdmin):
    """Which message holds which key, by its hash: the key itself is not kept."""

    list_display = ("id", linked("topic", _("topic")), "message_id", at("expires_at", _("expires")))
    related = ("topic",)
    search_fields = ("id", "message_id")
    search_help_text = _("The id of a row, or of the message that holds the key.")
    fields = (
        ("id", linked("topic", _("topic"))),
        "hash",
        ("message_id", "partition", at("expires_at", _("expires"))),
    )

    @admin.display(description=_("SHA-256 of the key"))
    def hash(self, row: DedupKey) -> str:
        return bytes(row.key_hash).hex()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        number = int(search_term) if search_term.isdecimal() and len(search_term) < 19 else -1
        return queryset.filter(Q(pk=number) | Q(message_id=number)), False

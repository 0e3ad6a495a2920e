"""Defines the page of the dedup keys that are in force."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.search import Search
from streams.models import DedupKey


@admin.register(DedupKey)
class DedupKeyAdmin(ReadOnly, LargeAdmin):
    """Which message holds which key, by its hash: the key itself is not stored."""

    list_display = ("id", "topic", "message_id", "expires_at")
    related = ("topic",)
    search_fields = ("id", "message_id")
    search_help_text = _("The id of a row, or of the message that holds the key.")
    fields = (("id", "topic"), "hash", ("message_id", "partition", "expires_at"))

    @admin.display(description=_("SHA-256 of the key"))
    def hash(self, row: DedupKey) -> str:
        return bytes(row.key_hash).hex()

    def found(self, search: Search) -> Q:
        number = -1 if search.pk is None else search.pk
        return Q(pk=number) | Q(message_id=number)

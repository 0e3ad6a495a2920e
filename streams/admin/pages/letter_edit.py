"""Defines the page of the edits of dead letters: who has edited which, and when."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import short
from streams.admin.parts.search import Search
from streams.models import LetterEdit


@admin.register(LetterEdit)
class LetterEditAdmin(ReadOnly, LargeAdmin):
    """The edits; what each has changed is on the page of its letter, with the body."""

    list_display = ("id", "the_letter", "who", "at")
    related = ("group",)
    search_fields = ("id", "letter")
    search_help_text = _("The id of an edit, or of a dead letter.")
    fields = (
        ("id", "the_letter", "group"),
        ("who", "at"),
        (short("key"), short("tag")),
        "size",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("body", "headers")

    @admin.display(description=_("dead letter"))
    def the_letter(self, row: LetterEdit) -> str:
        """Return the id with a link; the letter may be gone, and is not read for a list."""
        url = reverse("admin:ems_deadmessage_change", args=[row.letter_id])
        return format_html('<a href="{}">{}</a>', url, str(row.letter_id))

    def found(self, search: Search) -> Q:
        number = -1 if search.pk is None else search.pk
        return Q(pk=number) | Q(letter=number)

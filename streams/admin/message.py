from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams import body as bodies
from streams.admin.base import ReadOnlyAdmin
from streams.models import DeadMessage, Message

PREVIEW_BYTES = 1000


def preview(row: Message | DeadMessage) -> str:
    """The beginning of the body as text; bytes as they would stand in Python."""
    start = bytes(row.body)[:PREVIEW_BYTES]
    cut = "…" if row.size > PREVIEW_BYTES else ""
    if row.body_type == bodies.BYTES:
        return repr(start) + cut
    return start.decode(errors="replace") + cut


class BodyAdmin(ReadOnlyAdmin):
    exclude = ("body",)
    readonly_fields = ("body_preview",)

    @admin.display(description=_("body"))
    def body_preview(self, row: Message | DeadMessage) -> str:
        return preview(row)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message | DeadMessage]:
        # Bodies may be megabytes: a list does without them, a detail page fetches its one.
        return super().get_queryset(request).defer("body", "headers")


@admin.register(Message)
class MessageAdmin(BodyAdmin):
    list_display = (
        "id",
        "partition",
        "offset",
        "key",
        "tag",
        "size",
        "producer",
        "created_at",
        "sequenced_at",
    )
    list_filter = ("body_type",)
    list_select_related = ("partition__topic",)
    search_fields = ("=id", "=key")
    ordering = ("-id",)


@admin.register(DeadMessage)
class DeadMessageAdmin(BodyAdmin):
    list_display = ("id", "topic", "group", "offset", "key", "attempts", "error_class", "died_at")
    list_select_related = ("topic", "group__topic")
    search_fields = ("=id", "=message_id", "=key")
    ordering = ("-id",)

from __future__ import annotations

from django.contrib import admin

from streams.admin.base import ReadOnlyAdmin
from streams.models import Consumer, Cursor, Delivery, Partition, RetryMessage


@admin.register(Partition)
class PartitionAdmin(ReadOnlyAdmin):
    list_display = ("topic", "number", "first_offset", "next_offset", "last_sequenced_at")
    list_select_related = ("topic",)


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    list_display = ("group", "partition", "replay", "start_offset", "next_offset")
    list_select_related = ("group__topic", "partition__topic")


@admin.register(Consumer)
class ConsumerAdmin(ReadOnlyAdmin):
    list_display = ("client_id", "group", "started_at", "lease_until")
    list_select_related = ("group__topic",)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "group",
        "partition",
        "first_offset",
        "last_offset",
        "kind",
        "attempt",
        "state",
        "failed",
        "missing",
        "client_id",
        "thread",
        "claimed_at",
        "finished_at",
    )
    list_filter = ("state", "kind")
    list_select_related = ("group__topic", "partition__topic")
    ordering = ("-id",)
    exclude = ("token",)


@admin.register(RetryMessage)
class RetryMessageAdmin(ReadOnlyAdmin):
    list_display = ("group", "partition", "offset", "attempt", "due_at", "delivery", "last_error")
    list_select_related = ("group__topic", "partition__topic", "delivery")
    ordering = ("-id",)

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from streams.admin.base import StreamsAdmin
from streams.models import ConsumerGroup, SystemConfig, Topic


@admin.register(Topic)
class TopicAdmin(StreamsAdmin):
    list_display = ("name", "access", "retention_seconds", "created_at")
    list_filter = ("access",)
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", "created_at") if obj else ("created_at",)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(ConsumerGroup)
class ConsumerGroupAdmin(StreamsAdmin):
    list_display = ("name", "topic", "mode", "paused", "max_retries", "consume_timeout", "batch")
    list_filter = ("paused",)
    list_select_related = ("topic",)
    search_fields = ("name",)
    readonly_fields = ("topic", "name", "mode", "ordered", "start", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(SystemConfig)
class SystemConfigAdmin(StreamsAdmin):
    list_display = ("name", "value", "updated_at")

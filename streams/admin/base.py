"""What the admin pages of EMS have in common."""

from __future__ import annotations

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

# Counting millions of rows for a page number is not worth a second of the server's time.
COUNT_AT_MOST = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic only in stubs
    """Counts up to COUNT_AT_MOST rows; what lies beyond is found by filter or search."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return int(rows.order_by()[:COUNT_AT_MOST].count())
        return len(rows)


class StreamsAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic only in stubs
    """Lists stay fast on large tables."""

    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50


class ReadOnlyAdmin(StreamsAdmin):
    """For rows that only EMS itself may write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

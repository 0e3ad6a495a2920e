"""Lists that stay fast on millions of rows: capped counts, orders that an index gives, and for
what no index serves only the newest rows, which the page says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

# Counting millions of rows for a page number is not worth a second of the server's time.
COUNT_AT_MOST = 10_000

UPTO = "upto"  # in the URL: where the window ends


@dataclass(frozen=True)
class Reading:
    """How a list reads its table for the filters of the URL.

    ``ordering`` is one that an index gives. ``is_bounded``: no index serves the filters, and only
    a Window of ids is read, but for the rows ``always``, which are found by their key.
    """

    ordering: tuple[str, ...] = ("-id",)
    is_bounded: bool = False
    always: Q | None = None


@dataclass(frozen=True)
class Window:
    """The ids ``first`` … ``upto``."""

    first: int
    upto: int
    is_newest: bool
    always: Q | None = None

    @classmethod
    def of(cls, newest: int, asked: str, size: int, always: Q | None) -> Window:
        """``asked`` is what the URL says, if anything: the id where it ends."""
        upto = min(newest, int(asked)) if asked.isdecimal() else newest
        return cls(max(1, upto - size + 1), upto, upto == newest, always)

    @property
    def older(self) -> int:
        """Where the window before this one ends; 0 if there is none."""
        return self.first - 1

    def of_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        inside = Q(pk__gte=self.first, pk__lte=self.upto)
        return rows.filter(inside | self.always if self.always is not None else inside)


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic only in stubs
    """Counts up to COUNT_AT_MOST rows; what lies beyond is found by filter or search."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return int(rows.order_by().values("pk")[:COUNT_AT_MOST].count())
        return len(rows)


class WindowPaginator(CappedPaginator):
    """Reads the window once: a count and a page would each go through all of it."""

    @cached_property
    def ids(self) -> list[int]:
        rows: Any = self.object_list
        return list(rows.values_list("pk", flat=True)[:COUNT_AT_MOST])

    @cached_property
    def count(self) -> int:
        return len(self.ids)


class StreamsChangeList(ChangeList):
    """Reads the table as the model's admin says; no other order can be asked for in the URL."""

    model_admin: Any
    window: Window | None

    @property
    def capped(self) -> bool:
        return self.result_count >= COUNT_AT_MOST

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        found = super().get_filters_params(params)
        found.pop(UPTO, None)
        return found

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        if self.sortable_by:
            return super().get_ordering(request, queryset)
        return list(self.model_admin.get_ordering(request))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        self.window = self.model_admin.window(request)
        return self.window.of_rows(rows) if self.window else rows

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if isinstance(self.paginator, WindowPaginator):
            start = (self.page_num - 1) * self.list_per_page if self.multi_page else 0
            page = self.paginator.ids[start : start + self.list_per_page]
            self.result_list = self.queryset.filter(pk__in=page)

    @property
    def older_url(self) -> str:
        older = self.window.older if self.window else 0
        return self.get_query_string({UPTO: older}) if older else ""

    @property
    def newest_url(self) -> str:
        return self.get_query_string(remove=[UPTO])

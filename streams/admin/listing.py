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
# Rows that a filter or search without an index reads: about 0.2 s, see docs/benchmarks/admin.md.
SEARCHED = 100_000

UPTO = "upto"  # in the URL: where the window ends


@dataclass(frozen=True)
class Reading:
    """How a list reads its table for the filters of the URL.

    ``ordering`` is one that an index gives. ``bounded_by`` names a column ("id", or "offset" in
    one partition) when no index serves the filters: then only a Window of it is read.
    """

    ordering: tuple[str, ...] = ("-id",)
    bounded_by: str = ""
    always: Q | None = None  # rows found by their key, wherever they are


@dataclass(frozen=True)
class Window:
    """SEARCHED values of a column, up to ``upto``."""

    column: str
    upto: int
    newest: int
    always: Q | None = None

    @classmethod
    def of(cls, reading: Reading, newest: int, asked: str) -> Window:
        """``asked`` is what the URL says: "id:900000". Anything else is the newest window."""
        column, _, value = asked.partition(":")
        upto = newest
        if column == reading.bounded_by and value.isdecimal():
            upto = min(newest, int(value))
        return cls(reading.bounded_by, upto, newest, reading.always)

    @property
    def first(self) -> int:
        return max(self._lowest, self.upto - SEARCHED + 1)

    @property
    def here(self) -> str:
        return f"{self.column}:{self.upto}"

    @property
    def older(self) -> str:
        """The window before this one, as the URL says it; empty if there is none."""
        return f"{self.column}:{self.first - 1}" if self.first > self._lowest else ""

    @property
    def is_newest(self) -> bool:
        return self.upto == self.newest

    def of_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        inside = Q(**{f"{self.column}__gte": self.first, f"{self.column}__lte": self.upto})
        return rows.filter(inside | self.always if self.always is not None else inside)

    @property
    def _lowest(self) -> int:
        return 1 if self.column == "id" else 0


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic only in stubs
    """Counts up to COUNT_AT_MOST rows; what lies beyond is found by filter or search."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return int(rows.order_by().values("pk")[:COUNT_AT_MOST].count())
        return len(rows)


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

    @property
    def older_url(self) -> str:
        older = self.window.older if self.window else ""
        return self.get_query_string({UPTO: older}) if older else ""

    @property
    def newest_url(self) -> str:
        return self.get_query_string(remove=[UPTO])

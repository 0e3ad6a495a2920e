"""Keeps lists fast on millions of rows: counts are capped, and indexes give the orders.

For filters that no index serves, only the newest rows are read, and the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from streams.admin.parts.columns import url

# In rows: to count millions of them for a page number costs the server too much.
COUNT_AT_MOST = 10_000

UPTO = "upto"  # in the URL: where the window ends


@dataclass(frozen=True)
class ListReading:
    """How a list reads its table for the filters of the URL.

    An index gives the ``ordering``. If ``is_bounded``, no index serves the filters, and only a
    Window of ids is read, and the rows ``always``, which are found by their key.
    """

    ordering: tuple[str, ...] = ("-id",)
    is_bounded: bool = False
    always: Q | None = None


@dataclass(frozen=True)
class Window:
    """The ids ``first`` … ``upto`` that a list reads."""

    first: int
    upto: int
    is_newest: bool
    always: Q | None = None

    @classmethod
    def of(cls, newest: int, asked: str, size: int, always: Q | None) -> Window:
        """Return the window of ``size`` ids that ends at ``asked`` (in the URL), or ``newest``."""
        # Not less than asked for if the newest are gone: it would begin at older ones.
        upto = int(asked) if asked.isdecimal() else newest
        return cls(max(1, upto - size + 1), upto, upto >= newest, always)

    @property
    def older(self) -> int:
        """Return the id at which the window before this one ends; 0 if there is none."""
        return self.first - 1

    def of_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        inside = Q(pk__gte=self.first, pk__lte=self.upto)
        return rows.filter(inside | self.always if self.always is not None else inside)


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic only in stubs
    """A paginator that counts up to COUNT_AT_MOST rows; filters and searches find the others."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return int(rows.order_by().values("pk")[:COUNT_AT_MOST].count())
        return len(rows)


class WindowPaginator(CappedPaginator):
    """A paginator that reads the window once, for the count and for the page."""

    @cached_property
    def ids(self) -> list[int]:
        rows: Any = self.object_list
        return list(rows.values_list("pk", flat=True)[:COUNT_AT_MOST])

    @cached_property
    def count(self) -> int:
        return len(self.ids)


class StreamsChangeList(ChangeList):
    """A list that is read as the model's admin says; the URL cannot choose another order."""

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

    def note(self) -> str:
        """Return what the page says of its order."""
        return ""

    def page_of(self, row: Any) -> str:
        """Return the URL of the page of the row, from which one comes back to these filters."""
        filters: Any = {"preserved_filters": self.preserved_filters, "opts": self.opts}
        return str(add_preserved_filters(filters, url(row)))

    @property
    def older_url(self) -> str:
        older = self.window.older if self.window else 0
        return self.get_query_string({UPTO: older}) if older else ""

    @property
    def newest_url(self) -> str:
        return self.get_query_string(remove=[UPTO])

"""Defines filters with fixed choices, so that none reads the values of a large table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams.conf import database
from streams.models import ConsumerGroup, Partition, Topic
from streams.models.namespaces import own

# A longer list of choices is of no use. The URL accepts every value.
CHOICES_AT_MOST = 200


def number(text: str | None) -> int | None:
    """Return a value from the URL; raises IncorrectLookupParameters, which the admin handles."""
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise IncorrectLookupParameters(text)
    return int(text)


class RowFilter(admin.SimpleListFilter):
    """A filter by a row of a small table."""

    template = "admin/ems/filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        rows = self.rows().using(database())[:CHOICES_AT_MOST]
        return [(str(row.pk), str(row)) for row in rows]

    def rows(self) -> QuerySet[Any]:
        raise NotImplementedError

    def has_output(self) -> bool:
        return bool(self.lookup_choices) or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = number(self.value())
        return queryset if chosen is None else queryset.filter(**{str(self.parameter_name): chosen})


class GroupFilter(RowFilter):
    title = _("group")
    parameter_name = "group"

    def rows(self) -> QuerySet[ConsumerGroup]:
        return ConsumerGroup.objects.select_related("topic").order_by("name", "topic__name")


class TopicFilter(RowFilter):
    title = _("topic")
    parameter_name = "topic"

    def rows(self) -> QuerySet[Topic]:
        return Topic.objects.order_by("name")


class PartitionFilter(RowFilter):
    """A filter by partition under the title topic: each index of a log begins with it."""

    title = _("topic")
    parameter_name = "partition"

    def rows(self) -> QuerySet[Partition]:
        rows = Partition.objects.filter(own("topic__name")).select_related("topic")
        return rows.order_by("topic__name", "number")


class FixedFilter(admin.SimpleListFilter):
    """A filter by one of the values in ``options``; ``narrow`` says what each of them means."""

    template = "admin/ems/filter.html"
    options: Sequence[tuple[str, Any]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, Any]]:
        return self.options

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value not in dict(self.options):
            raise IncorrectLookupParameters(value)
        return self.narrow(queryset, value)

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(**{str(self.parameter_name): value})

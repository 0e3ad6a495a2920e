"""Defines the pages of tables that EMS writes for itself, and people look at in rare cases."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import Column, at, flag, linked, short
from streams.admin.parts.filled import ListedOnceFilled
from streams.models import KeyEntry, Move, Rewind, StressRun

# Foreign keys that a page links to.
RELATED = ("topic", "partition", "group")


class RecordAdmin(ListedOnceFilled, ReadOnly, LargeAdmin):
    """A table with all its columns, but bodies and hashes; the newest rows first."""

    change_list_template = "admin/ems/change_list.html"
    change_form_template = "admin/ems/change_form.html"
    object_history_template = "admin/ems/object_history.html"
    ordering = ("-pk",)

    def __init__(self, model: type[models.Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        shown = [
            one for one in model._meta.concrete_fields if not isinstance(one, models.BinaryField)
        ]
        self.related = tuple(one.name for one in shown if _is_linked(one))
        self._columns = [_column(one) for one in shown]

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._columns

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self._columns

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self._columns


def _is_linked(field: Any) -> bool:
    return field.is_relation and field.name in RELATED


def _column(field: Any) -> Column:
    if isinstance(field, models.DateTimeField):
        return at(field.name, field.verbose_name)
    if _is_linked(field):
        return linked(field.name, field.verbose_name)
    if isinstance(field, models.BooleanField):
        return flag(field.name, field.verbose_name)
    if isinstance(field, models.CharField | models.TextField) and not field.choices:
        return short(field.name, field.verbose_name)
    return field.attname if field.is_relation else field.name


admin.site.register([KeyEntry, Move, Rewind, StressRun], RecordAdmin)

"""Defines the pages of tables that EMS writes for itself, and people look at in rare cases."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import Column, is_linked, short
from streams.admin.parts.filled import ListedOnceFilled
from streams.models import KeyBucket, KeyEntry, Move, RateBucket, Rewind, StressRun


class RecordAdmin(ListedOnceFilled, ReadOnly, LargeAdmin):
    """A table with all its columns, but bodies and hashes; the newest rows first."""

    change_list_template = "admin/ems/change_list.html"
    change_form_template = "admin/ems/change_form.html"
    object_history_template = "admin/ems/object_history.html"
    ordering = ("-pk",)

    def __init__(self, model: type[models.Model], admin_site: admin.AdminSite) -> None:
        fields = model._meta.concrete_fields
        names: Any = [_shown(one) for one in fields if not isinstance(one, models.BinaryField)]
        self.list_display = names
        super().__init__(model, admin_site)
        self.layout = self.list_display


def _shown(field: Any) -> Column:
    if field.is_relation:
        return field.name if is_linked(field) else field.attname
    is_text = isinstance(field, models.CharField | models.TextField) and not field.choices
    return short(field.name) if is_text else field.name


admin.site.register([KeyBucket, KeyEntry, Move, RateBucket, Rewind, StressRun], RecordAdmin)

"""Defines the page of the run-time settings: a row overrides a default."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import models
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin
from streams.conf import database
from streams.models import SystemConfig
from streams.operate.changes import in_force


class _ValueField(forms.JSONField):
    """A field that is empty where there is no value yet, instead of showing ``null``."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)

    # For too many digits or brackets json raises errors that Django does not expect.

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


@admin.register(SystemConfig)
class SystemConfigAdmin(StreamsAdmin):
    """The run-time settings. A row overrides a default in all processes within 5 seconds."""

    list_display = ("name", "value", "updated_at")
    ordering = ("name",)
    sortable_by = ()
    fields = ("name", "value")
    formfield_overrides = {models.JSONField: {"form_class": _ValueField, "widget": forms.TextInput}}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "value" and field is not None:
            field.help_text = _("A whole number, or true or false.")
        return field

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {**(extra_context or {}), "in_force": in_force(database())}
        return super().changelist_view(request, context)

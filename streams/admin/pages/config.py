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
from streams.admin.parts.columns import at
from streams.conf import DEFAULTS, database
from streams.models import SystemConfig

MEANINGS = {
    "autoCreateTopic": _("whether the first send to a topic creates it"),
    "msgMaxSizeInBytes": _("the largest body, in bytes"),
    "consumerBatchSize": _("how many messages one claim takes at most"),
    "consumerThreads": _("worker threads of each group in each process; read when it starts"),
    "consumerRetryMaxTimes": _("attempts after the first one; then the message is a dead letter"),
    "consumeTimeoutSeconds": _("how long one handler call may take, in seconds"),
    "messageRetentionDays": _(
        "days that messages are kept where the topic does not say it, and until every group has"
        " finished them; 0: for ever"
    ),
    "deliveryRetentionDays": _("days that deliveries are kept after their end; 0: for ever"),
    "deadRetentionDays": _("days that dead letters are kept; 0: for ever"),
    "dedupWindowSeconds": _("the dedup window of a send that names none, in seconds"),
}


class _ValueField(forms.JSONField):
    """Shows an empty text where there is no value yet, not ``null``."""

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
    """Shows the run-time settings. A row overrides a default in all processes within 5 seconds."""

    list_display = ("name", "value", at("updated_at", _("changed")))
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
        return super().changelist_view(request, {**(extra_context or {}), "in_force": _in_force()})


def _in_force() -> list[dict[str, Any]]:
    """Return every setting with the value in force now."""
    overrides = SystemConfig.objects.using(database()).overrides()
    return [
        {
            "name": name,
            "value": overrides.get(name, default),
            "default": default,
            "is_overridden": name in overrides,
            "meaning": MEANINGS.get(name, ""),
        }
        for name, default in DEFAULTS.items()
    ]

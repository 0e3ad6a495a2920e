"""Defines the page of the channels of alarms. What is secret is written, and never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.alarms.rules import told_by_these_alone
from monitoring.models import AlarmChannel
from streams.admin.base import StreamsAdmin, StreamsForm
from streams.admin.parts.columns import at, short
from streams.conf import database

SECRETS = ("url", "secret")
TELLS_NO_OTHER = _("The rule %s tells no other channel: choose one for it first.")


class ChannelForm(StreamsForm):
    """Keeps what is secret where it is left empty."""

    class Meta:
        model = AlarmChannel
        fields = "__all__"
        widgets = {
            name: forms.PasswordInput(render_value=False, attrs={"autocomplete": "off"})
            for name in SECRETS
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in SECRETS:
            self.initial[name] = ""  # an empty field is no change
            if name in self.fields and self.instance.pk:
                self.fields[name].help_text = _("It is not shown. Empty: as it was.")

    def clean(self) -> Any:
        cleaned: dict[str, Any] = super().clean() or {}
        for name in SECRETS:
            cleaned[name] = cleaned.get(name) or getattr(self.instance, name)
        return cleaned


@admin.register(AlarmChannel)
class AlarmChannelAdmin(StreamsAdmin):
    form = ChannelForm
    list_display = (
        *("name", "kind", "enabled", "target"),
        at("last_sent_at", _("last sent")),
        at("last_failed_at", _("last failed")),
        short("last_error", _("error")),
    )
    ordering = ("name",)
    fields = (
        ("name", "kind"),
        "enabled",
        "recipients",
        *SECRETS,
        "allow_private",
    )

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # With another address, a channel that allows private ones would reach what it must not.
        is_open = isinstance(obj, AlarmChannel) and obj.allow_private
        return super().has_change_permission(request, obj) and (not is_open or _is_root(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # Who may only look sees the fields as texts, and a text would show what is secret.
        if obj is None or self.has_change_permission(request, obj):
            return self.fields
        return [name for name in self.fields if name not in SECRETS] + ["target"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("target",) if _is_root(request) else ("target", "allow_private")

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        rules = told_by_these_alone(objs, database())
        return [str(row) for row in objs], {}, set(), [TELLS_NO_OTHER % name for name in rules]


def _is_root(request: HttpRequest) -> bool:
    """Tell whether the user may let a channel reach private addresses."""
    return bool(getattr(request.user, "is_superuser", False))

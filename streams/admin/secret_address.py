"""Defines what the pages of addresses share: a secret is written, and never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin, StreamsForm

SECRETS = ("url", "secret")


class SecretForm(StreamsForm):
    """A form that keeps a secret whose field is left empty."""

    class Meta:
        fields = "__all__"
        widgets = {
            name: forms.PasswordInput(render_value=False, attrs={"autocomplete": "off"})
            for name in SECRETS
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in SECRETS:
            self.initial[name] = ""  # an empty field is not a change
            if name in self.fields and self.instance.pk:
                self.fields[name].required = False
                self.fields[name].help_text = _("It is not shown. Empty: as it was.")

    def clean(self) -> Any:
        cleaned: dict[str, Any] = super().clean() or {}
        for name in SECRETS:
            cleaned[name] = cleaned.get(name) or getattr(self.instance, name)
        return cleaned


class SecretAddressAdmin(StreamsAdmin):
    """Rows with a URL, a secret and ``allow_private``, which only a superuser may set."""

    per_database = False
    form = SecretForm

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # With another address, one that allows private ones would reach what it must not.
        is_open = bool(getattr(obj, "allow_private", False))
        return super().has_change_permission(request, obj) and (not is_open or _is_root(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # Who may only look sees the fields as texts, and a text would show what is secret.
        if obj is None or self.has_change_permission(request, obj):
            return self.fields
        return [name for name in self.fields or () if name not in SECRETS] + ["target"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("target",) if _is_root(request) else ("target", "allow_private")


def _is_root(request: HttpRequest) -> bool:
    """Tell whether the user may let EMS reach private addresses."""
    return bool(getattr(request.user, "is_superuser", False))

"""Defines the page of the check endpoints. A secret is written, and never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin, StreamsForm
from streams.admin.parts import journal
from streams.admin.parts.columns import at, short
from streams.conf import database
from streams.database.clock import database_now
from streams.errors import StreamsError
from streams.models import CheckEndpoint
from streams.two_phase.asking import ask_about_nothing

SECRETS = ("url", "secret")
# The most endpoints that one request tests: each may let it wait for its timeout.
TESTED_AT_MOST = 5


class EndpointForm(StreamsForm):
    """Keeps what is secret where it is left empty."""

    class Meta:
        model = CheckEndpoint
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
                self.fields[name].required = False
                self.fields[name].help_text = _("It is not shown. Empty: as it was.")

    def clean(self) -> Any:
        cleaned: dict[str, Any] = super().clean() or {}
        for name in SECRETS:
            cleaned[name] = cleaned.get(name) or getattr(self.instance, name)
        return cleaned


@admin.register(CheckEndpoint)
class CheckEndpointAdmin(StreamsAdmin):
    form = EndpointForm
    list_display = (
        *("name", "target", "dialect", "enabled", "failures"),
        at("paused_until", _("paused until")),
        short("last_error", _("error")),
    )
    ordering = ("name",)
    fields = ("name", *SECRETS, "dialect", "timeout_seconds", "allow_private", "enabled")
    actions = ("test",)
    verbs = {"test": _("Test")}

    @admin.action(permissions=["test"], description=_("Test"))
    def test(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Ask each about a key that cannot be, and say what it answers."""
        using = database()
        for row in queryset.order_by("name")[:TESTED_AT_MOST]:
            try:
                outcome = ask_about_nothing(row, database_now(using), using).value
                level = messages.SUCCESS
            except StreamsError as error:
                outcome, level = str(error), messages.ERROR
            journal.note(request, [(row, gettext("Tested: %s") % outcome)])
            self.message_user(request, f"{row}: {outcome}", level)

    def has_test_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.test_checkendpoint")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # With another address, one that allows private ones would reach what it must not.
        is_open = isinstance(obj, CheckEndpoint) and obj.allow_private
        return super().has_change_permission(request, obj) and (not is_open or _is_root(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # Who may only look sees the fields as texts, and a text would show what is secret.
        if obj is None or self.has_change_permission(request, obj):
            return self.fields
        return [name for name in self.fields if name not in SECRETS] + ["target"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("target",) if _is_root(request) else ("target", "allow_private")


def _is_root(request: HttpRequest) -> bool:
    """Tell whether the user may let an endpoint reach private addresses."""
    return bool(getattr(request.user, "is_superuser", False))

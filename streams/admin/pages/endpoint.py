"""Defines the page of the check endpoints. A secret is written, and never shown."""

from __future__ import annotations

import hmac
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.parts import journal
from streams.admin.parts.columns import short
from streams.admin.secret_address import SECRETS, SecretAddressAdmin, SecretForm
from streams.conf import database
from streams.database.clock import database_now
from streams.errors import StreamsError
from streams.models import CheckEndpoint
from streams.two_phase.asking import ask_about_nothing

# The most endpoints that one request tests: each may let it wait for its timeout.
TESTED_AT_MOST = 5


# Who chooses where EMS asks, and how it reads the answer, decides about messages, as with both of
# these rights. Who deletes an endpoint makes its name free for another one.
MOVED_BY = ("name", "url", "secret", "dialect")
DECIDES = ("ems.commit_prepared", "ems.rollback_prepared")


class EndpointForm(SecretForm):
    current_secret = forms.CharField(
        label=_("current secret"),
        required=False,
        strip=False,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "off"}),
        help_text=_(
            "Needed for another name, URL, secret or dialect: the endpoint decides about messages."
        ),
    )
    user: Any  # who changes it

    class Meta(SecretForm.Meta):
        model = CheckEndpoint

    def clean(self) -> Any:
        cleaned: dict[str, Any] = super().clean()
        was = self.instance
        if all(cleaned.get(name) == getattr(was, name) for name in MOVED_BY):
            return cleaned
        if was.pk and was.secret:
            typed = cleaned.get("current_secret") or ""
            if not hmac.compare_digest(typed.encode(), was.secret.encode()):
                text = _("Type the secret that the endpoint has now, to change where EMS asks.")
                self.add_error("current_secret", text)
        elif not self.user.has_perms(DECIDES):
            text = _("EMS asks it about messages: you need the rights to commit and roll back.")
            self.add_error(None, text)
        return cleaned


@admin.register(CheckEndpoint)
class CheckEndpointAdmin(SecretAddressAdmin):
    form = EndpointForm
    list_display = (
        *("name", "target", "dialect", "enabled", "failures"),
        "paused_until",
        short("last_error"),
    )
    ordering = ("name",)
    fields = (
        "name",
        *SECRETS,
        "current_secret",
        "dialect",
        "timeout_seconds",
        "allow_private",
        "enabled",
    )
    actions = ("test",)
    verbs = {"test": _("Test")}

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.user = request.user
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_fields(request, obj)
        is_changed = obj is not None and self.has_change_permission(request, obj)
        return [name for name in fields if name != "current_secret" or is_changed]

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

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and request.user.has_perms(DECIDES)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and request.user.has_perms(DECIDES)

    def has_test_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.test_checkendpoint")

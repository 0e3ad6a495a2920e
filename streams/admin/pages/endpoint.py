"""Defines the page of the check endpoints. A secret is written, and never shown."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.parts import journal
from streams.admin.parts.columns import at, short
from streams.admin.secret_address import SECRETS, SecretAddressAdmin, SecretForm
from streams.conf import database
from streams.database.clock import database_now
from streams.errors import StreamsError
from streams.models import CheckEndpoint
from streams.two_phase.asking import ask_about_nothing

# The most endpoints that one request tests: each may let it wait for its timeout.
TESTED_AT_MOST = 5


class EndpointForm(SecretForm):
    class Meta(SecretForm.Meta):
        model = CheckEndpoint


@admin.register(CheckEndpoint)
class CheckEndpointAdmin(SecretAddressAdmin):
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

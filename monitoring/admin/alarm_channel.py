"""Defines the page of the channels of alarms. What is secret is written, and never shown."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.alarms.rules import told_by_these_alone
from monitoring.models import AlarmChannel
from streams.admin.parts.columns import short
from streams.admin.secret_address import SECRETS, SecretAddressAdmin, SecretForm
from streams.conf import database

TELLS_NO_OTHER = _("The rule %s tells no other channel: choose one for it first.")


class ChannelForm(SecretForm):
    class Meta(SecretForm.Meta):
        model = AlarmChannel


@admin.register(AlarmChannel)
class AlarmChannelAdmin(SecretAddressAdmin):
    form = ChannelForm
    list_display = (
        *("name", "kind", "enabled", "target"),
        "last_sent_at",
        "last_failed_at",
        short("last_error"),
    )
    ordering = ("name",)
    fields = (("name", "kind"), "enabled", "recipients", *SECRETS, "allow_private")

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        rules = told_by_these_alone(objs, database())
        return [str(row) for row in objs], {}, set(), [TELLS_NO_OTHER % name for name in rules]

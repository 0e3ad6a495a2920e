from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin, TopicFilter, share
from monitoring.models import HotKey
from streams.admin.columns import at, linked


@admin.register(HotKey)
class HotKeyAdmin(RollUpAdmin):
    list_display = (
        at("hour", _("hour")),
        linked("topic", _("topic")),
        *("place", "key", "messages", "bytes"),
        share("share", _("share")),
    )
    list_filter = (TopicFilter,)
    related = ("topic",)
    ordering = ("-hour", "-id")
    chosen_by = "topic"
    order_of_chosen = ("-topic_id", "-hour", "-place")
    fields = (
        (at("hour", _("hour")), linked("topic", _("topic"))),
        ("place", "key"),
        ("messages", "bytes", share("share", _("share"))),
    )

"""Defines the page of the hot keys: the keys with the most messages of an hour."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from monitoring.admin.base import RollUpAdmin, share
from monitoring.models import HotKey
from streams.admin.parts.filters import TopicFilter
from streams.admin.parts.listing import StreamsChangeList


class _Ranked(StreamsChangeList):
    """A list with the first place of an hour first; the index has the opposite order."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = sorted(self.result_list, key=lambda row: (row.topic_id, row.place))
        self.result_list = sorted(rows, key=lambda row: row.hour, reverse=True)


@admin.register(HotKey)
class HotKeyAdmin(RollUpAdmin):
    list_display = ("hour", "topic", "place", "key", "messages", "bytes", share("share"))
    list_filter = (TopicFilter,)
    ordering = ("-hour", "-id")
    chosen_by = "topic"
    order_of_chosen = ("-topic_id", "-hour", "-place")
    fields = (("hour", "topic"), ("place", "key"), ("messages", "bytes", share("share")))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamsChangeList]:
        return _Ranked

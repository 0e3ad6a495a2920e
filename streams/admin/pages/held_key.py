"""Defines the page of the held keys: the message that holds each, and what waits for it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import column, group_name, list_url, messages, short
from streams.admin.parts.filters import GroupFilter
from streams.admin.parts.listing import ListReading, StreamsChangeList
from streams.conf import database
from streams.consume.key_holders import KeyHolder, key_holders
from streams.models import HeldKey, RetryMessage


class HeldKeyChangeList(StreamsChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = with_holders(self.result_list)


def with_holders(keys: Any) -> list[Any]:
    """Return the keys, each with its ``holder``, by two statements for all."""
    rows = list(keys)
    for row, holder in zip(rows, key_holders(rows, database()), strict=True):
        row.holder = holder
        if holder.head:
            RetryMessage._meta.get_field("partition").set_cached_value(holder.head, row.partition)
    return rows


@column(_("message"))
def message(row: Any) -> str:
    holder: KeyHolder = row.holder
    return messages(holder.head) if holder.head else holder.place


@column(_("state"))
def state(row: Any) -> str:
    if row.dead:
        return figures.state(gettext("dead letter"), figures.BAD)
    if row.holder.is_running:
        return figures.state(gettext("running now"))
    return figures.state(gettext("waiting"), figures.WARNING)


@column(_("attempt"))
def attempt(row: Any) -> str:
    holder: KeyHolder = row.holder
    return figures.number(holder.attempt)


@column(_("due"))
def due(row: Any) -> Any:
    return row.holder.due_at or figures.UNKNOWN


@column(_("wait behind it"))
def behind(row: Any) -> str:
    parked = list_url(RetryMessage, group=row.group_id, state="parked")
    return figures.number(row.holder.behind, parked)


@column(_("last error"))
def error(row: Any) -> str:
    holder: KeyHolder = row.holder
    return holder.error


@admin.register(HeldKey)
class HeldKeyAdmin(ReadOnly, LargeAdmin):
    # What is looked for comes first: on a narrow screen the rest is beyond its edge.
    list_display = ("id", short("key", 24), message, state, behind, attempt, "held_at", group_name)
    list_filter = (GroupFilter,)
    related = ("group", "partition")
    ordering = ("pk",)
    fields = (
        ("id", "group", short("key", 255)),
        (message, state, "held_at"),
        (attempt, due, behind),
        error,
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamsChangeList]:
        return HeldKeyChangeList

    def reading(self, request: HttpRequest) -> ListReading:
        return ListReading(("pk",))

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        row = super().get_object(request, *args, **kwargs)
        return row and with_holders([row])[0]

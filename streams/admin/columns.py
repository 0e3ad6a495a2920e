"""Columns and fields that several pages show: instants, durations, places, links."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

UNKNOWN = "–"
SHORT = 60

# A callable as a column or a field, which Django's stubs do not know everywhere.
Column = Any


def column(description: Any) -> Callable[[Callable[[Any], Any]], Column]:
    def described(show: Callable[[Any], Any]) -> Column:
        return admin.display(description=description)(show)

    return described


def instant(value: datetime | None) -> SafeString | None:
    """To the second, in the project's time zone; in UTC as its title."""
    if value is None:
        return None
    local = timezone.localtime(value)
    utc = f"{value:%Y-%m-%d %H:%M:%S.%f} UTC"
    text = f"{local:%Y-%m-%d %H:%M:%S}"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), utc, text)


def duration(value: timedelta | None) -> str | None:
    """In its two largest units."""
    if value is None:
        return None
    seconds = max(0, int(value.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return _t("%(days)d d %(hours)d h") % {"days": days, "hours": hours % 24}
    if hours:
        return _t("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes % 60}
    if minutes:
        return _t("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": seconds % 60}
    return _t("%d s") % seconds


def at(field: str, description: Any) -> Column:
    """A column with an instant."""

    @column(description)
    def show(row: Any) -> SafeString | None:
        return instant(getattr(row, field))

    show.__name__ = field
    return show


def short(field: str, description: Any) -> Column:
    """A column with the beginning of a text."""

    @column(description)
    def show(row: Any) -> str:
        return Truncator(getattr(row, field)).chars(SHORT)

    show.__name__ = field
    return show


def url(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_url(model: type[Model], **filters: Any) -> str:
    """The list of this model, with filters as its URL has them."""
    path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{path}?{urlencode(filters)}" if filters else path


def link(row: Model | None, text: str = "") -> SafeString | None:
    return None if row is None else format_html('<a href="{}">{}</a>', url(row), text or str(row))


def linked(field: str, description: Any) -> Column:
    """A field with a link to the row that it names; that row may be gone."""

    @column(description)
    def show(row: Any) -> Any:
        return link(getattr(row, field))

    show.__name__ = field
    return show


@column(_("place"))
def place(row: Any) -> str | None:
    """Topic/partition@offset, as the search takes it."""
    return None if row.offset is None else f"{row.partition}@{row.offset}"


@column(_("message"))
def message_place(row: Any) -> SafeString:
    """The same with a link to the message, which may have been purged."""
    from streams.models import Message

    text = f"{row.partition}@{row.offset}"
    return format_html('<a href="{}">{}</a>', list_url(Message, q=text), text)

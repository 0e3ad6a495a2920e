"""Defines columns and fields that several pages show: instants, durations, places, links."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import BooleanField, DateTimeField, Model
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.parts.figures import UNKNOWN, duration, named, titled
from streams.durations import of_seconds
from streams.log.places import LogPlace
from streams.models.fields import SecondsField

# In characters: what a list shows of a text, of a place, and of a name beside it.
SHORT = 60
NAME = 32
BESIDE = 19

# Foreign keys that lists and pages link to.
LINKED = ("topic", "partition", "group")

# A callable as a column or a field, which Django's stubs do not know everywhere.
Column = Any


def column(description: Any = None) -> Callable[[Callable[[Any], Any]], Column]:
    def described(show: Callable[[Any], Any]) -> Column:
        return admin.display(description=description)(show)

    return described


def instant(value: datetime | None) -> str:
    """Return the instant to the second, in the project's time zone, with UTC as its title."""
    if value is None:
        return UNKNOWN
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{} UTC"><span>{}</span> <span>{}</span></time>',
        value.isoformat(),
        f"{value:%Y-%m-%d %H:%M:%S.%f}",
        f"{local:%Y-%m-%d}",
        f"{local:%H:%M:%S}",
    )


def at(field: str, description: Any = None) -> Column:
    """Return a column with an instant."""

    @column(description)
    def show(row: Any) -> str:
        return instant(getattr(row, field))

    show.__name__ = field
    return show


def short(field: str, width: int = SHORT, description: Any = None) -> Column:
    """Return a column with the beginning of a text, and all of it as its title."""

    @column(description)
    def show(row: Any) -> str:
        return titled(getattr(row, field) or UNKNOWN, width)

    show.__name__ = field
    return show


def flag(field: str, description: Any = None) -> Column:
    """Return a column with "yes" or "no". Django's icons would say that one of them is bad."""

    @column(description)
    def show(row: Any) -> str:
        return gettext("yes") if getattr(row, field) else gettext("no")

    show.__name__ = show.admin_order_field = field
    return show


def seconds(field: str) -> Column:
    """Return a column with a duration that may be short."""

    @column()
    def show(row: Any) -> str:
        value = getattr(row, field)
        if value is None:
            return UNKNOWN
        if value >= 60:
            return duration(of_seconds(value))
        return f"{value:.3f}\N{NO-BREAK SPACE}s"

    show.__name__ = field
    return show


COLUMNS = {DateTimeField: at, SecondsField: seconds, BooleanField: flag}


def url(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_url(model: type[Model], **filters: Any) -> str:
    """Return the URL of the list of ``model``, with ``filters`` as its parameters."""
    path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{path}?{urlencode(filters)}" if filters else path


def link(row: Model | None, text: str = "") -> str:
    return (
        UNKNOWN if row is None else format_html('<a href="{}">{}</a>', url(row), text or str(row))
    )


def linked(field: str, width: int | None = None, description: Any = None) -> Column:
    """Return a field with a link to the row of a foreign key, which may be gone."""

    @column(description)
    def show(row: Any) -> Any:
        found = getattr(row, field)
        if width is None or found is None:
            return link(found)
        return named(str(found), url(found), width)

    show.__name__ = field
    return show


def shown(model: type[Model], layout: Any) -> Any:
    """Return what a list or a page shows, with a column for each name of a field that has one.

    The model says what it is, and its name: an instant, a duration, yes or no, a row with a page.
    """
    if isinstance(layout, list | tuple):
        return tuple(shown(model, one) for one in layout)
    name = layout if isinstance(layout, str) else layout.__name__
    field = {one.name: one for one in model._meta.concrete_fields}.get(name)
    if field is not None and layout == name:
        of_kind = (show for kind, show in COLUMNS.items() if isinstance(field, kind))
        layout = (linked if is_linked(field) else next(of_kind, str))(name)
    if field is not None and callable(layout) and not hasattr(layout, "short_description"):
        layout.short_description = field.verbose_name
    return layout


def is_linked(field: Any) -> bool:
    return field.is_relation and field.name in LINKED


def span(row: Any) -> str:
    """Return topic/partition@offsets of a row of the log, as the search accepts it."""
    return UNKNOWN if getattr(row, "offset", 0) is None else str(LogPlace.of(row))


@column(_("place"))
def place(row: Any) -> str:
    """Return the place of a message; before it has an offset, its topic and partition."""
    where = str(row.partition) if row.offset is None else span(row)
    return titled(where, NAME)


@column(_("message"))
def messages(row: Any) -> str:
    """Return the place, with a link to its messages; they may have been purged."""
    from streams.models import Message

    return named(span(row), list_url(Message, q=span(row)), NAME)


@column(_("group"))
def group_name(row: Any) -> str:
    """Return the name of the group alone, for lists in which the place names the topic."""
    return named(row.group.name, url(row.group), BESIDE)


def below(text: str, more: str) -> str:
    """Return ``text``, and below it the beginning of ``more`` if there is any."""
    if not more:
        return text
    return format_html('{}<div class="ems-below ems-cut">{}</div>', text, titled(more, 2 * SHORT))


def label(row: Any) -> str:
    """Return a name for a row on a page, with names of its relations if they still exist."""
    try:
        return _named(row)
    except ObjectDoesNotExist:
        return str(row)


def _named(row: Any) -> str:
    if not hasattr(row, "partition_id"):
        return str(row)
    is_in_the_log = hasattr(row, "offset") or hasattr(row, "last_offset")
    where = span(row) if is_in_the_log else str(row.partition)
    if where == UNKNOWN:  # in the inbox
        where = f"{row.partition} #{row.pk}"
    if hasattr(row, "head_offset"):  # a held key
        where = f"{row.partition}, {row.key[:SHORT]}"
    if not hasattr(row, "group_id"):
        return where
    return gettext("%(place)s for %(group)s") % {"place": where, "group": row.group}

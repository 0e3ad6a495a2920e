"""For the templates of the admin pages."""

from __future__ import annotations

from typing import Any

from django import template

from streams.admin.alarm import alarm
from streams.admin.columns import UNKNOWN, duration, instant, list_url, url
from streams.conf import database
from streams.models import Message

register = template.Library()


@register.simple_tag
def ems_alarm() -> str:
    """What nobody does at the moment."""
    return alarm(database())


@register.filter
def ems_instant(value: Any) -> Any:
    return instant(value) or UNKNOWN


@register.filter
def ems_duration(value: Any) -> Any:
    return duration(value) or UNKNOWN


@register.filter
def ems_url(row: Any) -> str:
    """The admin page of a row."""
    return url(row)


@register.filter
def ems_place_url(row: Any) -> str:
    """The message at the place that a row names."""
    return list_url(Message, q=f"{row.partition}@{row.offset}")

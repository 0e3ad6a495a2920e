"""For the templates of the admin pages."""

from __future__ import annotations

from typing import Any

from django import template

from streams.admin.alarm import alarm
from streams.admin.columns import instant, url
from streams.admin.delivery import outcome
from streams.conf import database

register = template.Library()


@register.simple_tag
def ems_alarm() -> str:
    """What nobody does at the moment."""
    return alarm(database())


@register.filter
def ems_instant(value: Any) -> Any:
    return instant(value)


@register.filter
def ems_url(row: Any) -> str:
    """The admin page of a row."""
    return url(row)


@register.filter
def ems_outcome(delivery: Any) -> str:
    return outcome(delivery)

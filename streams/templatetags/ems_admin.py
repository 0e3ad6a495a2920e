"""Defines tags and filters for the templates of the admin pages.

Django imports this in every project that has templates, also in one without the admin. So each
tag imports from the admin only when it is used.
"""

from __future__ import annotations

from typing import Any

from django import template

from streams.conf import database

register = template.Library()


@register.simple_tag
def ems_alarm() -> str:
    """Return the alarm for the top of a page, or an empty text."""
    from streams.admin.alarm import alarm

    return alarm(database())


@register.filter
def ems_instant(value: Any) -> str:
    from streams.admin.parts.columns import instant

    return instant(value)


@register.filter
def ems_url(row: Any) -> str:
    """Return the URL of the admin page of a row."""
    from streams.admin.parts.columns import url

    return url(row)


@register.filter
def ems_outcome(delivery: Any) -> str:
    from streams.admin.pages.delivery import outcome

    return outcome(delivery)

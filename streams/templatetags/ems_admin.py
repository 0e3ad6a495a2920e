"""Defines tags and filters for the templates of the admin pages.

Django imports this in every project that has templates, also in one without the admin. So each
tag imports from the admin only when it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.text import capfirst

register = template.Library()

CHECKBOX = 'class="action-checkbox'  # of the column that selects rows


@register.simple_tag(takes_context=True)
def ems_alarms(context: Any) -> list[Any]:
    """Return the alarms for the top of a page: that of its database, or those of all of them."""
    from streams.admin.parts.databases import alarms

    return alarms(context["request"])


@register.inclusion_tag("admin/ems/includes/databases.html", takes_context=True)
def ems_databases(context: Any) -> dict[str, Any]:
    """Show on which database the page works, and links to the others; nothing if there is one."""
    from streams.admin.parts.databases import databases

    return {"shown": databases(context["request"])}


@register.filter
def ems_instant(value: Any) -> str:
    from streams.admin.parts.columns import instant

    return instant(value)


@register.filter
def ems_number(value: Any) -> str:
    """Return a number as a figure; unknown is a dash."""
    from streams.admin.parts.figures import number

    return number(value)


@register.filter
def ems_age(value: Any) -> str:
    """Return a timedelta as a figure; unknown is a dash."""
    from streams.admin.parts.figures import age

    return age(value)


@register.simple_tag
def ems_state(text: Any, level: str) -> str:
    """Return a state as a word on the colour of its level: bad, warning, good, quiet."""
    from streams.admin.parts.figures import state

    return state(text, level)


@register.filter
def ems_rows(rows: Iterable[Iterable[str]], headers: Iterable[Any]) -> Iterator[list[str]]:
    """Yield the cells of each row of a list, with the header of its column as data-label.

    On a narrow screen the stylesheet shows it before the cell. The roles are said, since a row
    with another display is no longer a row for some browsers.
    """
    labels = [
        format_html(
            ' data-label="{}"',
            "" if CHECKBOX in header["class_attrib"] else capfirst(header["text"]),
        )
        for header in headers
    ]
    for row in rows:
        cells = list(row)
        if not any(cell.startswith("<th") for cell in cells):
            heading = 1 if CHECKBOX in cells[0] else 0
            cells[heading] = f"<th{cells[heading][3:-5]}</th>"
        yield [_labelled(cell, label) for cell, label in zip(cells, labels, strict=True)]


def _labelled(cell: str, label: str) -> str:
    role = ' role="rowheader"' if cell.startswith("<th") else ' role="cell"'
    return mark_safe(f"{cell[:3]}{role}{label}{cell[3:]}")  # noqa: S308 - Django has escaped the cell


@register.filter
def ems_url(row: Any) -> str:
    """Return the URL of the admin page of a row."""
    from streams.admin.parts.columns import url

    return url(row)


@register.filter
def ems_label(row: Any) -> str:
    """Return a name for a row."""
    from streams.admin.parts.columns import label

    return label(row)


@register.filter
def ems_took(value: Any) -> str:
    """Return how long something took; unknown is a dash."""
    from streams.admin.parts.figures import took

    return took(value)


@register.filter
def ems_outcome(delivery: Any) -> str:
    """Return what became of all messages of a delivery."""
    from streams.admin.pages.delivery import outcome

    return outcome(delivery)


@register.filter
def ems_attempt(attempt: Any) -> str:
    """Return what became of one message in an attempt, as a state."""
    from streams.admin.pages.message import attempt_state

    return attempt_state(attempt)

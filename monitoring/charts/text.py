"""Writes figures of charts and pages as text: rates, counts that end, sizes, shares."""

from __future__ import annotations

from django.utils.formats import number_format
from django.utils.translation import gettext as _

UNKNOWN = "–"
NBSP = "\N{NO-BREAK SPACE}"
KILO = 1024


def number(value: float | None) -> str:
    """Return a number with at most three digits after the point, and with separators."""
    if value is None:
        return UNKNOWN
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return str(number_format(round(value, digits), digits, force_grouping=True))


def rate(value: float | None) -> str:
    """Return messages a second."""
    return UNKNOWN if value is None else _("%s/s") % number(value)


def count(value: int | None, at_most: int) -> str:
    """Return a count that has ended at ``at_most``: "10,000+"."""
    if value is None:
        return UNKNOWN
    return number(value) + ("+" if value >= at_most else "")


def size(value: float | None) -> str:
    """Return bytes, in the largest unit that leaves one or more."""
    if value is None:
        return UNKNOWN
    units = [_("B"), _("KiB"), _("MiB"), _("GiB"), _("TiB")]
    while value >= KILO and len(units) > 1:
        value /= KILO
        units.pop(0)
    return f"{number(value)}{NBSP}{units[0]}"


def change(value: float | None) -> str:
    """Return by how many per cent something has become more or less, with its sign."""
    if value is None:
        return UNKNOWN
    sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else ""
    return f"{sign}{share(abs(value))}"


def share(value: float | None) -> str:
    """Return a part of one, in per cent."""
    return UNKNOWN if value is None else f"{number(100 * value)}{NBSP}%"

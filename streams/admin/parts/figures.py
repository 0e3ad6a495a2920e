"""Shows figures: numbers, ages and states, in the same way on every page.

The classes of the stylesheet stand beside them: ems-number, ems-age, ems-state.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join

from streams.durations import brief, precise
from streams.log.condition import Condition, Standing, Trouble

UNKNOWN = "–"
NBSP = "\N{NO-BREAK SPACE}"

# How much a state needs somebody: each has a class in the stylesheet. The word says the state too,
# so that nobody has to tell colours apart.
BAD, WARNING, GOOD, QUIET = "bad", "warning", "good", "quiet"


def grouped(value: int | None) -> str:
    """Return the number with the separators of the language; unknown is a dash."""
    return UNKNOWN if value is None else str(number_format(value, force_grouping=True))


def number(value: int | None, url: str = "") -> str:
    """Return the number as a figure, which leads to what it counts if there is any."""
    text = grouped(value)
    if value and url:
        text = format_html('<a href="{}">{}</a>', url, text)
    quiet = "" if value else " ems-quiet"
    return format_html('<span class="ems-number{}">{}</span>', quiet, text)


def state(text: Any, level: str = QUIET) -> str:
    """Return the state as a word on the colour of its level."""
    return format_html('<span class="ems-state ems-state-{}">{}</span>', level, text)


def group_state(standing: Standing) -> str:
    """Return why a group needs somebody, the worst first, and what it does."""
    needs = [(need.trouble, standing.told(need)) for need in standing.needs]
    return group_words(standing.condition, standing.level, needs)


def group_words(condition: Condition, level: str, needs: Sequence[tuple[Trouble, str]]) -> str:
    """Return the same of its words. What is a trouble is not said again as what the group does."""
    if condition.value in [trouble.value for trouble, _told in needs]:
        words = ""
    else:
        words = state(condition.label, QUIET if needs and level == GOOD else level)
    rows = (
        (state(one.label, WARNING if one == Trouble.PAUSED else BAD), told) for one, told in needs
    )
    listed = format_html_join("", '<div class="ems-need">{} {}</div>', rows)
    return format_html("{}{}", listed, words)


def duration(value: timedelta | None) -> str:
    """Return the duration in its two largest units; unknown is a dash."""
    return UNKNOWN if value is None else brief(value).replace(" ", NBSP)


def took(value: timedelta | None) -> str:
    """Return how long something took: below ten seconds with three digits."""
    return UNKNOWN if value is None else precise(value).replace(" ", NBSP)


def age(value: timedelta | None) -> str:
    """Return the duration as a figure."""
    return age_of(duration(value))


def age_of(text: str) -> str:
    """Return the text of a duration as a figure."""
    quiet = " ems-quiet" if text == UNKNOWN else ""
    return format_html('<span class="ems-age{}">{}</span>', quiet, text)


def shortened(name: str, width: int = 60) -> str:
    """Return a long name without its middle, since names often differ at their end."""
    if len(name) <= width:
        return name
    tail = width * 2 // 5
    return f"{name[: width - tail - 1]}…{name[-tail:]}"


def titled(text: str, width: int) -> str:
    """Return a text, without its middle if it is long, and then all of it as its title."""
    short = shortened(text, width)
    if short == text:
        return text
    return format_html('<span title="{}">{}</span>', text, short)


def named(name: str, url: str, width: int = 60) -> str:
    """Return a link with a name, which has its whole name as its title if it was shortened."""
    short = shortened(name, width)
    if short == name:
        return format_html('<a href="{}">{}</a>', url, name)
    return format_html('<a href="{}" title="{}">{}</a>', url, name, short)


def counted(field: str, description: Any = None) -> Any:
    """Return a column with the number in ``field``."""

    @admin.display(description=description)
    def show(row: Any) -> str:
        return number(getattr(row, field))

    show.__name__ = field
    return show

"""Reads durations as people write them (``90``, ``10s``, ``5m``, ``1.5h``), and writes them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from streams.errors import MAX_DELAY, InvalidDuration

UNITS = {
    "ms": "milliseconds",
    "": "seconds",
    "s": "seconds",
    "m": "minutes",
    "min": "minutes",
    "h": "hours",
    "d": "days",
}
DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?) ?(?P<unit>[a-z]*)")


def parse_duration(text: str) -> timedelta:
    """Read a number with a unit: ms, s, m (or min), h or d; without a unit, seconds.

    Raises InvalidDuration, also for more than a century.
    """
    match = DURATION.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in UNITS:
        raise InvalidDuration(
            _("%r is not a duration: write 10s, 5m, 2h or 1d; a number alone is seconds.") % text
        )
    duration = timedelta(**{UNITS[match["unit"]]: float(match["number"])})
    if duration > MAX_DELAY:
        raise InvalidDuration(_("The duration %s is longer than a century.") % text)
    return duration


def of_seconds(seconds: float | None) -> timedelta | None:
    """Return so many seconds as a duration; None if they are unknown, or more than a century."""
    if seconds is None or not abs(seconds) <= MAX_DELAY.total_seconds():
        return None
    return timedelta(seconds=seconds)


def brief(value: timedelta) -> str:
    """Return the duration as people read it, in its two largest units: “4 min 49 s”."""
    seconds = max(0, int(value.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return _("%(days)d d %(hours)d h") % {"days": days, "hours": hours % 24}
    if hours:
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes % 60}
    if minutes:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": seconds % 60}
    return _("%d s") % seconds


def precise(value: timedelta) -> str:
    """Return the same, below ten seconds with three digits: “0.196 s”."""
    if value >= timedelta(seconds=10):
        return brief(value)
    return _("%s s") % number_format(Decimal(f"{max(0.0, value.total_seconds()):.3g}"))

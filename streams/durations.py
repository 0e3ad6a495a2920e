"""Reads durations as people write them: ``90``, ``10s``, ``5m``, ``1.5h``, ``2d``."""

from __future__ import annotations

import re
from datetime import timedelta

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
            _("%r is not a duration: write a number and a unit, such as 10s, 5m, 2h or 1d.") % text
        )
    duration = timedelta(**{UNITS[match["unit"]]: float(match["number"])})
    if duration > MAX_DELAY:
        raise InvalidDuration(_("The duration %s is longer than a century.") % text)
    return duration

"""Defines the grains of the samples: the periods for which one sample stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

# In minutes, the longest first. Each one is a multiple of the next one.
GRAINS = (360, 60, 5, 1)
HOURLY = 60

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor(moment: datetime, minutes: int) -> datetime:
    """Return the beginning of the period of so many ``minutes`` that contains ``moment``."""
    return moment - (moment - EPOCH) % timedelta(minutes=minutes)


def grain(moment: datetime, before: datetime | None) -> int:
    """Return the longest period that began after the sample ``before``: None if there was none."""
    if before is None:
        return GRAINS[0]
    return next(
        (minutes for minutes in GRAINS if floor(before, minutes) != floor(moment, minutes)), 1
    )

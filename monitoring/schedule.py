"""The schedule of the roll-ups for Celery beat; see streams/schedule.py.

As a setting: ``CELERY_BEAT_SCHEDULE = {**SCHEDULE, **monitoring.schedule.SCHEDULE}``.
"""

from __future__ import annotations

from typing import Any

from streams.schedule import entries

EVERY = {"rollup": 60.0}
# A run has so long: the first one of an old installation has much to catch up with. Until it has
# ended, those that begin later find it at work, and leave.
SECONDS = 3600


def schedule(using: str | None = None) -> dict[str, dict[str, Any]]:
    """The entries for the streams on the alias ``using``, by default ``EMS["DATABASE"]``."""
    return entries(EVERY, using)


SCHEDULE = schedule()

"""Defines the schedule of the Spark jobs for Celery beat; see streams/schedule.py.

As a setting: ``CELERY_BEAT_SCHEDULE = {**SCHEDULE, **monitoring.schedule.SCHEDULE}``.
"""

from __future__ import annotations

from typing import Any

from streams.schedule import entries
from streams.sharding import aliases, is_sharded

# To start Java each minute costs many times what the roll-ups cost: who wants minutes runs
# ``ems_spark serve``.
EVERY = {"rollup": 300.0, "nightly": 900.0}
# The seconds that a run may take: the first one of an old installation has much to read. Runs that
# begin before it has ended find its lock, and end at once.
SECONDS = {"rollup": 3600, "nightly": 12 * 3600}


def schedule(using: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the entries for the streams on the alias ``using``, by default ``EMS["DATABASE"]``.

    That one has entries for all databases with topics, since they share a process.
    """
    if using is None or not is_sharded() or using not in aliases():
        return entries(EVERY, using)
    return entries(EVERY) if using == aliases()[0] else {}


SCHEDULE = schedule()

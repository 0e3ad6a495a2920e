"""The schedule of the time-driven steps for Celery beat.

Either as a setting, ``CELERY_BEAT_SCHEDULE = {**SCHEDULE, …}``, or, for the DatabaseScheduler of
django-celery-beat, as rows that ``manage.py ems_sync_schedules`` adds. Not both: that scheduler
copies the setting over the rows at each start, and so over what was edited in the admin.
"""

from __future__ import annotations

from typing import Any

# A task that could not start within its own period is of no use: the next one is there already.
SCHEDULE: dict[str, dict[str, Any]] = {
    f"ems-{name}": {
        "task": f"ems.{name}",
        "schedule": seconds,
        "options": {"expires": seconds},
    }
    for name, seconds in (("sequence", 1.0), ("sweep", 5.0), ("retries", 1.0))
}

"""Defines the schedule of the time-driven steps for Celery beat.

Either as a setting, ``CELERY_BEAT_SCHEDULE = {**SCHEDULE, …}``, or, for the DatabaseScheduler of
django-celery-beat, as rows that ``manage.py ems_sync_schedules`` adds. Not both: that scheduler
copies the setting over the rows at each start, and so over what was edited in the admin.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps

# Seconds from one run of a task to the next. A task that could not start within its period expires,
# since the next one is already queued.
EVERY = {"sequence": 1.0, "sweep": 5.0, "retries": 1.0, "purge": 60.0, "steps": 5.0}


def entries(every: dict[str, float], using: str | None = None) -> dict[str, dict[str, Any]]:
    """Return an entry for each task in ``every``, {name: seconds from one run to the next}."""
    name = f"ems-{using}" if using else "ems"
    return {
        f"{name}-{task}": {
            "task": f"ems.{task}",
            "schedule": seconds,
            "kwargs": {"using": using} if using else {},
            "options": {"expires": seconds},
        }
        for task, seconds in every.items()
    }


def schedule(using: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the entries for the streams on the alias ``using``, by default ``EMS["DATABASE"]``."""
    return entries(EVERY, using)


SCHEDULE = schedule()


def of_all_apps(using: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the entries of EMS and of other apps: ``ems_schedule`` of their AppConfig."""
    found = schedule(using)
    for config in apps.get_app_configs():
        if hasattr(config, "ems_schedule"):
            found |= config.ems_schedule(using)
    return found

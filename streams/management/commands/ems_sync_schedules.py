"""Defines ems_sync_schedules, which writes the steps into django-celery-beat's tables."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import router

from streams.conf import settings
from streams.database.transactions import committing
from streams.management.base import StreamsCommand, add_dry_run
from streams.schedule import of_all_apps
from streams.sharding import aliases


class Command(StreamsCommand):
    help = "Add the schedule of EMS to django-celery-beat; existing entries stay as they are."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--reset", action="store_true", help="also set existing entries back to the defaults"
        )
        add_dry_run(parser)

    def run(self, **options: Any) -> None:
        if not apps.is_installed("django_celery_beat"):
            raise CommandError(
                "django_celery_beat is not in INSTALLED_APPS. Install django-celery-beat, if it"
                " takes the Django of the project: 2.9 does not take 6.1. Without it, set"
                " CELERY_BEAT_SCHEDULE to streams.schedule.SCHEDULE; or do without beat, since"
                " ems_consume runs all steps itself."
            )
        from django_celery_beat.models import PeriodicTask

        chosen = [self.using] if options["database"] else aliases()
        entries = {
            name: entry
            for alias in chosen
            for name, entry in of_all_apps(None if alias == settings().DATABASE else alias).items()
        }
        # The rows of beat may be on another alias than the streams.
        with committing(router.db_for_write(PeriodicTask)):
            rows = [
                (name, self._sync(name, entry, options["reset"], options["dry_run"]))
                for name, entry in entries.items()
            ]
        self.show(("entry", "outcome"), rows)

    def _sync(self, name: str, entry: dict[str, Any], reset: bool, dry_run: bool) -> str:
        from django_celery_beat.models import PeriodicTask

        exists = PeriodicTask.objects.filter(name=name).exists()
        if exists and not reset:
            return "left as it is"
        if not dry_run:
            tasks = PeriodicTask.objects
            write = tasks.update_or_create if reset else tasks.get_or_create
            write(name=name, defaults=self._defaults(entry))
        return "set" if exists else "added"

    def _defaults(self, entry: dict[str, Any]) -> dict[str, Any]:
        from django_celery_beat.models import IntervalSchedule

        every = {"every": int(entry["schedule"]), "period": IntervalSchedule.SECONDS}
        # There may be several equal intervals, since beat does not make them unique.
        interval = IntervalSchedule.objects.filter(**every).first()
        return {
            "task": entry["task"],
            "interval": interval or IntervalSchedule.objects.create(**every),
            "crontab": None,
            "solar": None,
            "clocked": None,
            "kwargs": json.dumps(entry["kwargs"]),
            "args": "[]",
            "expire_seconds": int(entry["options"]["expires"]),
            "expires": None,
            "start_time": None,
            "one_off": False,
            "enabled": True,
        }

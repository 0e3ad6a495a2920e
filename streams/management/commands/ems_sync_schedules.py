from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from streams.schedule import SCHEDULE


class Command(BaseCommand):
    help = "Add the schedule of EMS to django-celery-beat; what is there is left as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reset", action="store_true", help=_("also set existing entries back to the defaults")
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed("django_celery_beat"):
            raise CommandError(
                _("django_celery_beat is not in INSTALLED_APPS: pip install django-ems[celery].")
            )
        from django_celery_beat.models import IntervalSchedule, PeriodicTask

        for name, entry in SCHEDULE.items():
            interval, _created = IntervalSchedule.objects.get_or_create(
                every=int(entry["schedule"]), period=IntervalSchedule.SECONDS
            )
            values = {
                "task": entry["task"],
                "interval": interval,
                "expire_seconds": int(entry["options"]["expires"]),
                "args": json.dumps([]),
                "enabled": True,
            }
            if options["reset"]:
                PeriodicTask.objects.update_or_create(name=name, defaults=values)
                outcome = _("set")
            else:
                _task, created = PeriodicTask.objects.get_or_create(name=name, defaults=values)
                outcome = _("added") if created else _("left as it is")
            self.stdout.write(f"{name}: {outcome}")

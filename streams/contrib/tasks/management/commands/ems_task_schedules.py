"""Defines ems_task_schedules, which lists schedules of tasks, pauses them and runs them now."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams.contrib.tasks.models import TaskSchedule
from streams.contrib.tasks.schedules import schedules
from streams.management.acts import ActVerbs


class Command(ActVerbs):
    noun = TaskSchedule
    help = "The schedules of tasks: what they enqueue and when; pause them, run them now."
    verbs = {
        "list": "the schedules, and their last and next runs",
        "pause": "enqueue nothing by one",
        "resume": "go on with one that was paused",
        "run": "enqueue the task of one now",
    }

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="its name")

    def rows_named(self, options: Mapping[str, Any]) -> list[TaskSchedule]:
        found = list(TaskSchedule.objects.using(self.using).filter(name=options["name"]))
        if not found:
            raise CommandError(f"There is no schedule {options['name']} that has run.")
        return found

    def row_named(self, options: Mapping[str, Any]) -> TaskSchedule:
        return self.rows_named(options)[0]

    def described(self, row: TaskSchedule) -> dict[str, Any]:
        return {"schedule": row.name}

    def do_list(self, **options: Any) -> None:
        known = {row.name: row for row in TaskSchedule.objects.using(self.using)}
        rows = []
        for one in schedules():
            row = known.get(one.name)
            last = row.last_tick_at if row else None
            following = None if last is None else one.when.after(last)
            state = "paused" if row and row.paused else "on"
            rows.append((one.name, one.path, state, last, following))
        self.show(("schedule", "task", "state", "last_run_at", "next_run_at"), rows)

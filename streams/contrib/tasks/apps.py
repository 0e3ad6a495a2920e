"""Configures the Django app of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from streams.observe.work import Door


class TasksConfig(AppConfig):
    name = "streams.contrib.tasks"
    # The host project may have an app with the label "tasks", and a label can never be changed.
    label = "ems_tasks"
    verbose_name = _("Tasks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from streams.contrib.tasks import acts, buried, checks, erasing  # noqa: F401 - registers checks
        from streams.operate import erasure
        from streams.signals import message_dead

        acts.register()
        erasure.OTHERS.append(erasing.erase)
        message_dead.connect(buried.note, dispatch_uid="ems_tasks")

    def ems_steps(self) -> dict[str, Callable[[str], object]]:
        """Return what consumers and beat run every few seconds."""
        from streams.contrib.tasks import batches, schedules

        return {
            batches.STEP: batches.end_batches_if_due,
            schedules.STEP: schedules.enqueue_due_if_due,
        }

    def ems_work(self) -> list[Door]:
        """Return by which door tasks come in, for the page of all background work."""
        from streams.contrib.tasks.models import TaskRun
        from streams.contrib.tasks.names import GROUP, PREFIX
        from streams.contrib.tasks.running import running
        from streams.observe.work import Door

        return [Door(_("Tasks"), PREFIX, GROUP, running, TaskRun)]

    def ems_old_rows(self) -> dict[str, Callable[[str], Iterator[int]]]:
        """Return what the nightly purge deletes of these tables, too."""
        from streams.contrib.tasks.prune import old_tasks

        return {"tasks": old_tasks}

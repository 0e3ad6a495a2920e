"""Defines TaskSchedule: how far a schedule of the settings is, and whether it is paused."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import TopicOrGroupField, UtcDateTimeField
from streams.models.namespaces import OwnManager
from streams.rules.names import MAX_NAME


class TaskScheduleQuerySet(models.QuerySet["TaskSchedule"]):
    def running(self) -> TaskScheduleQuerySet:
        return self.filter(paused=False)


class TaskSchedule(models.Model):
    """A schedule of OPTIONS["schedules"]; when it runs stands there."""

    name = TopicOrGroupField(_("name"), max_length=MAX_NAME)
    paused = models.BooleanField(_("paused"), default=False)
    last_tick_at = UtcDateTimeField(_("last run"))
    runs = models.IntegerField(_("runs by hand"), default=0)  # that an operator has asked for

    objects = OwnManager.from_queryset(TaskScheduleQuerySet)()

    class Meta:
        db_table = "ems_task_schedule"
        verbose_name = _("schedule of a task")
        verbose_name_plural = _("schedules of tasks")
        default_permissions = ("view",)
        permissions = (
            ("pause_taskschedule", _("Can pause schedules of tasks")),
            ("run_taskschedule", _("Can run schedules of tasks now")),
        )
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_task_schedule_name"),)

    def __str__(self) -> str:
        return str(self.name)

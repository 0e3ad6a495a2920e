"""Defines TaskBatch: tasks that were enqueued together, and what follows when all have ended."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.contrib.tasks.names import MAX_BACKEND
from streams.models.fields import NameField, UtcDateTimeField, UtcNow


class TaskBatch(models.Model):
    """Tasks that were enqueued together. How many have ended is counted in their own rows."""

    backend = NameField(_("backend"), max_length=MAX_BACKEND)
    total = models.IntegerField(_("tasks"))
    # What is enqueued at the end: {"path": …, "queue": …, "priority": …}
    on_success = models.JSONField(_("on success"), null=True)
    on_failure = models.JSONField(_("on failure"), null=True)
    created_at = UtcDateTimeField(_("created"), default=UtcNow)
    # When a step looks at it the next time: the longer it runs, the less often.
    check_at = UtcDateTimeField(_("next look"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished"), null=True)
    failed = models.IntegerField(_("failed"), null=True)

    class Meta:
        db_table = "ems_task_batch"
        verbose_name = _("batch of tasks")
        verbose_name_plural = _("batches of tasks")
        default_permissions = ("view",)
        indexes = (models.Index(fields=["finished_at", "check_at"], name="ems_task_batch_next"),)

    def __str__(self) -> str:
        return str(self.pk)

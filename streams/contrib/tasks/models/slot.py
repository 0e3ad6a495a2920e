"""Defines TaskSlot: one of the tasks with the same key that may run at the same time."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import HashField, UtcDateTimeField


class TaskSlot(models.Model):
    """A slot of a task with a limit; whoever runs holds one. A token of 0 is nobody's."""

    key_hash = HashField(_("SHA-256 of the task and its key"))
    number = models.IntegerField(_("number"))
    token = models.BigIntegerField(_("token"), default=0)
    # The message whose task holds it: while no delivery of it is open, nobody runs it.
    topic = models.BigIntegerField(_("topic"), default=0)
    partition = models.IntegerField(_("partition"), default=0)
    offset = models.BigIntegerField(_("offset"), default=0)
    taken_at = UtcDateTimeField(_("taken"), null=True)

    class Meta:
        db_table = "ems_task_slot"
        verbose_name = _("slot of a task")
        verbose_name_plural = _("slots of tasks")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=["key_hash", "number"], name="ems_task_slot_place"),
        )

    def __str__(self) -> str:
        return str(self.number)

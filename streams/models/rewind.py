"""Defines Rewind: a log that had lost its last offsets, and the offsets that nobody gets again."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, UtcDateTimeField, UtcNow


class Rewind(models.Model):
    """The offsets first_offset … next_offset - 1 of a partition, which are left out.

    The log ended at ``first_offset`` though a process knew that it had reached ``known_offset``:
    a failover or a restore has lost commits. Offsets between them had been given to messages that
    are lost. From ``epoch`` on the log goes on at ``next_offset``. A row is never changed.
    """

    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    epoch = models.PositiveIntegerField(_("epoch"))
    first_offset = models.BigIntegerField(_("first offset left out"))
    known_offset = models.BigIntegerField(_("end that was known"))
    next_offset = models.BigIntegerField(_("next offset"))
    noticed_at = UtcDateTimeField(_("noticed at"), default=UtcNow)
    noticed_by = models.CharField(_("noticed by"), max_length=190)

    class Meta:
        db_table = "ems_rewind"
        verbose_name = _("rewind of a log")
        verbose_name_plural = _("rewinds of logs")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["partition", "epoch"], name="ems_rewind_place"),
        )
        indexes = (models.Index(fields=["noticed_at"], name="ems_rewind_noticed"),)

    def __str__(self) -> str:
        return f"{self.partition_id}: {self.first_offset}–{self.next_offset - 1}"

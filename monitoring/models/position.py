"""Defines Position: how far a job has read a partition."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Position(models.Model):
    """How far the traffic of a partition is rolled up.

    It moves in the transaction that writes the rows of a window, and only from where that window
    began: of two runs at the same time one writes, and the other rolls back.
    """

    partition = models.OneToOneField(
        "ems.Partition",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        primary_key=True,
        verbose_name=_("partition"),
    )
    open_offset = models.BigIntegerField(
        _("open from"), help_text=_("The first offset of the minute that is read once more.")
    )
    next_offset = models.BigIntegerField(_("next offset"))

    class Meta:
        db_table = "ems_monitoring_position"
        verbose_name = _("position")
        verbose_name_plural = _("positions")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.partition_id}@{self.next_offset}"

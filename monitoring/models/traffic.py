"""Defines Traffic: messages and bytes of a partition in a minute."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, UtcDateTimeField


class Traffic(models.Model):
    """The messages of one minute of one partition: offsets first_offset … end_offset - 1.

    Each row of a partition begins where the one before ends, so each message is in one of them. A
    minute has more than one row only if its beginning was purged before its end was counted.
    """

    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    minute = UtcDateTimeField(_("minute"))
    first_offset = models.BigIntegerField(_("first offset"))
    end_offset = models.BigIntegerField(_("end offset"))
    messages = models.BigIntegerField(_("messages"))
    bytes = models.BigIntegerField(_("bytes"))
    keys = models.BigIntegerField(
        _("keys"), help_text=_("Different keys; a message may have none.")
    )
    delayed = models.BigIntegerField(
        _("delayed"), help_text=_("Of the messages, those that were sent to be due later.")
    )

    class Meta:
        db_table = "ems_monitoring_traffic"
        verbose_name = _("traffic")
        verbose_name_plural = _("traffic")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["partition", "first_offset"], name="ems_traffic_place"),
        )
        indexes = (models.Index(fields=["minute", "partition"], name="ems_traffic_minute"),)

    def __str__(self) -> str:
        return f"{self.partition_id}@{self.first_offset}–{self.last_offset}"

    @property
    def last_offset(self) -> int:
        return self.end_offset - 1

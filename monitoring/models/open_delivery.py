"""Defines OpenDelivery: a delivery that the roll-ups have to look at again."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import UtcDateTimeField


class OpenDelivery(models.Model):
    """A delivery that was open when its time was rolled up, or was open for very long.

    A handler's transaction that commits late gives its delivery an end in the past, in a minute
    that was counted before. With this row the next run finds it, and counts that minute again.
    Deliveries that were open for longer than an hour stay here while they are in the log.
    """

    delivery_id = models.BigIntegerField(_("delivery"), primary_key=True)
    finished_at = UtcDateTimeField(
        _("finished at"),
        null=True,
        blank=True,
        help_text=_("When it ended, if it is counted; else it was open when it was looked at."),
    )

    class Meta:
        db_table = "ems_monitoring_open"
        verbose_name = _("open delivery")
        verbose_name_plural = _("open deliveries")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.delivery_id)

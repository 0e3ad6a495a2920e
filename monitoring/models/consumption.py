"""Defines Consumption: what a group has handled in a minute, by client and thread."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField, SecondsField, UtcDateTimeField


class Consumption(models.Model):
    """What one thread of one client has finished for a group in one minute, in messages.

    A message that is retried is counted once for each attempt: failed, failed, consumed.
    """

    group = LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))
    minute = UtcDateTimeField(_("minute"), help_text=_("In which the deliveries finished."))
    client_id = NameField(_("client id"), max_length=190)
    thread = NameField(_("thread"), max_length=64)
    deliveries = models.BigIntegerField(_("deliveries"))
    consumed = models.BigIntegerField(_("consumed"))
    failed = models.BigIntegerField(_("failed"))
    retried = models.BigIntegerField(
        _("retried"), help_text=_("Attempts after the first one, whatever came of them.")
    )
    dead = models.BigIntegerField(
        _("dead"), help_text=_("Of the failed, those that became dead letters.")
    )
    lost = models.BigIntegerField(
        _("lost"), help_text=_("Taken from a process that died or took too long, to be retried.")
    )
    missing = models.BigIntegerField(_("missing"))
    passed = models.BigIntegerField(_("passed over"))
    busy_seconds = SecondsField(
        _("busy"), help_text=_("From the claim of each delivery to its end.")
    )
    longest_seconds = SecondsField(_("longest"), help_text=_("Of these deliveries."))

    class Meta:
        db_table = "ems_monitoring_consumption"
        verbose_name = _("consumption")
        verbose_name_plural = _("consumption")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["group", "minute", "client_id", "thread"], name="ems_consumption_place"
            ),
        )
        indexes = (models.Index(fields=["minute", "group"], name="ems_consumption_minute"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.minute:%Y-%m-%d %H:%M} {self.client_id} {self.thread}"

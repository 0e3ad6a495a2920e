"""Defines ErrorClass: how often handlers of a group raised a class of error in a minute."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField


class ErrorClass(models.Model):
    """How often a group failed with one class of error in one minute."""

    group = LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))
    minute = UtcDateTimeField(_("minute"))
    error_class = NameField(_("error class"), max_length=255)
    failed = models.BigIntegerField(_("failed"), help_text=_("Messages, each with its own error."))
    dead = models.BigIntegerField(_("dead"), help_text=_("Dead letters of this class."))

    class Meta:
        db_table = "ems_monitoring_error"
        verbose_name = _("error class")
        verbose_name_plural = _("error classes")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["group", "minute", "error_class"], name="ems_error_place"
            ),
        )
        indexes = (models.Index(fields=["minute", "group"], name="ems_error_minute"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.minute:%Y-%m-%d %H:%M} {self.error_class}"

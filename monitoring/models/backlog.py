"""Defines Backlog: how far a group was behind in a minute."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, UtcDateTimeField


class Backlog(models.Model):
    """Records how far behind a group was when it was looked at in this minute."""

    group = LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))
    minute = UtcDateTimeField(_("minute"))
    behind = models.BigIntegerField(
        _("behind"), null=True, blank=True, help_text=_("In the log, and not claimed yet.")
    )
    open = models.BigIntegerField(_("open"), help_text=_("Claimed, and not settled yet."))
    waiting = models.BigIntegerField(_("retries"), help_text=_("Waiting to be retried."))
    dead = models.BigIntegerField(_("dead"), help_text=_("Dead letters that wait for a decision."))
    age_seconds = models.FloatField(
        _("age"),
        null=True,
        blank=True,
        help_text=_("Seconds since the oldest unfinished message came into the log."),
    )
    trend = models.FloatField(
        _("trend"),
        null=True,
        blank=True,
        help_text=_("Messages a minute by which the lag grows, over the last 15 minutes."),
    )
    clear_seconds = models.FloatField(
        _("time to clear"),
        null=True,
        blank=True,
        help_text=_("Seconds until nothing is left at this trend; empty while it does not fall."),
    )

    class Meta:
        db_table = "ems_monitoring_backlog"
        verbose_name = _("backlog")
        verbose_name_plural = _("backlogs")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["group", "minute"], name="ems_backlog_place"),
        )
        indexes = (models.Index(fields=["minute"], name="ems_backlog_minute"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.minute:%Y-%m-%d %H:%M}"

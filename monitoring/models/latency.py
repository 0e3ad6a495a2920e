"""Defines Latency: how long the messages of a minute took for one leg of their way."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, SecondsField, UtcDateTimeField


class Leg(models.TextChoices):
    SEQUENCED = "sequenced", _("sent → in the log")
    CLAIMED = "claimed", _("in the log → claimed")
    DONE = "done", _("claimed → done")
    TOTAL = "total", _("sent → done")


class Latency(models.Model):
    """How long the messages took that a group finished in one minute, in seconds.

    Only first attempts count, since retries wait for the retry delays. Delayed messages do not
    count in the legs that begin with the send, since they wait on purpose. Purged messages do not
    count.
    """

    group = LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))
    minute = UtcDateTimeField(_("minute"))
    leg = models.CharField(_("leg"), max_length=9, choices=Leg.choices)
    messages = models.BigIntegerField(_("messages"))
    mean = SecondsField(_("mean"))
    p50 = SecondsField(_("median"))
    p95 = SecondsField(_("95 %"))
    p99 = SecondsField(_("99 %"))
    worst = SecondsField(_("longest"))
    histogram = models.TextField(
        _("histogram"),
        help_text=_("Bucket and count; from it the percentiles of longer times are computed."),
    )

    class Meta:
        db_table = "ems_monitoring_latency"
        verbose_name = _("latency")
        verbose_name_plural = _("latencies")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["group", "minute", "leg"], name="ems_latency_place"),
        )
        indexes = (models.Index(fields=["minute", "group"], name="ems_latency_minute"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.minute:%Y-%m-%d %H:%M} {self.leg}"

"""Defines the samples: what each partition and each group was like, minute by minute."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, SecondsField, UtcDateTimeField


class Sample(models.Model):
    """What all samples have: when it was taken, and of which periods it is the first one.

    ``grain`` is the longest period, in minutes, in which no sample was taken before it. So a chart
    of days reads the samples of a coarse grain, and finds one in each period that has any.
    """

    minute = UtcDateTimeField(_("minute"))
    taken_at = UtcDateTimeField(_("taken at"))
    grain = models.PositiveSmallIntegerField(_("grain"), default=1)

    class Meta:
        abstract = True


class PartitionSample(Sample):
    """How far the log of a partition was, and what waited in its inbox."""

    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    first_offset = models.BigIntegerField(_("first offset"))
    next_offset = models.BigIntegerField(_("next offset"))
    inbox = models.BigIntegerField(
        _("inbox"), help_text=_("Due and without an offset; counted up to 10,000.")
    )
    inbox_age_seconds = SecondsField(_("inbox age"), null=True, blank=True)

    class Meta:
        db_table = "ems_monitoring_sample"
        verbose_name = _("sample of a partition")
        verbose_name_plural = _("samples of partitions")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["partition", "minute"], name="ems_sample_place"),
        )
        indexes = (models.Index(fields=["grain", "minute"], name="ems_sample_minute"),)

    def __str__(self) -> str:
        return f"{self.partition_id} {self.minute:%Y-%m-%d %H:%M}"


class GroupSample(Sample):
    """How far a group was. What is unknown is empty: a broadcast group has no cursors."""

    group = LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))
    behind = models.BigIntegerField(_("behind"), null=True, blank=True)
    open = models.BigIntegerField(_("open"))
    waiting = models.BigIntegerField(_("retries"), help_text=_("Counted up to 10,000."))
    dead = models.BigIntegerField(_("dead"), help_text=_("Counted up to 10,000."))
    done = models.BigIntegerField(
        _("done"),
        null=True,
        blank=True,
        help_text=_("Messages of the log that the group had finished."),
    )
    consumers = models.PositiveIntegerField(_("consumers"))
    blocked = models.PositiveIntegerField(_("blocked partitions"), default=0)
    age_seconds = SecondsField(_("age"), null=True, blank=True)
    reset_at = UtcDateTimeField(_("reset at"), null=True, blank=True)

    class Meta:
        db_table = "ems_monitoring_sample_group"
        verbose_name = _("sample of a group")
        verbose_name_plural = _("samples of groups")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["group", "minute"], name="ems_sample_group_place"),
        )
        indexes = (models.Index(fields=["grain", "minute"], name="ems_sample_group_minute"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.minute:%Y-%m-%d %H:%M}"

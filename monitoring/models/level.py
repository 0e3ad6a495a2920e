"""Defines the sums of hours and days, which are kept longer than the minutes."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from monitoring.models.latency import Leg
from streams.models.fields import LooseForeignKey, NameField, SecondsField, UtcDateTimeField


class Grain(models.IntegerChoices):
    """How many minutes a row stands for."""

    HOUR = 60, _("hour")
    DAY = 24 * 60, _("day")


class Level(models.Model):
    """What the levels have in common. A row adds up what its minutes say."""

    grain = models.PositiveSmallIntegerField(_("grain"), choices=Grain.choices)
    start = UtcDateTimeField(_("from"))

    class Meta:
        abstract = True
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.start:%Y-%m-%d %H:%M}"


def _place(name: str, *key: str) -> tuple[models.UniqueConstraint, ...]:
    return (models.UniqueConstraint(fields=["grain", "start", *key], name=name),)


def _of_partition() -> Any:
    return LooseForeignKey("ems.Partition", verbose_name=_("partition"))


def _of_group() -> Any:
    return LooseForeignKey("ems.ConsumerGroup", verbose_name=_("group"))


class TrafficLevel(Level):
    """The messages of an hour or a day of a partition."""

    partition = _of_partition()
    messages = models.BigIntegerField(_("messages"))
    bytes = models.BigIntegerField(_("bytes"))
    delayed = models.BigIntegerField(_("delayed"))

    class Meta(Level.Meta):
        db_table = "ems_monitoring_traffic_level"
        verbose_name = _("traffic of hours and days")
        verbose_name_plural = verbose_name
        constraints = _place("ems_traffic_level_place", "partition")


class ConsumptionLevel(Level):
    """What one thread of one client has finished for a group in an hour or a day."""

    group = _of_group()
    client_id = NameField(_("client id"), max_length=190)
    thread = NameField(_("thread"), max_length=64)
    deliveries = models.BigIntegerField(_("deliveries"))
    consumed = models.BigIntegerField(_("consumed"))
    failed = models.BigIntegerField(_("failed"))
    retried = models.BigIntegerField(_("retried"))
    dead = models.BigIntegerField(_("dead"))
    lost = models.BigIntegerField(_("lost"))
    missing = models.BigIntegerField(_("missing"))
    passed = models.BigIntegerField(_("passed over"))
    busy_seconds = SecondsField(_("busy"))
    longest_seconds = SecondsField(_("longest"))

    class Meta(Level.Meta):
        db_table = "ems_monitoring_consumption_level"
        verbose_name = _("consumption of hours and days")
        verbose_name_plural = verbose_name
        constraints = _place("ems_consumption_level_place", "group", "client_id", "thread")


class LatencyLevel(Level):
    """How long the messages took that a group finished in an hour or a day.

    Mean and longest are exact; percentiles come from the histogram, see live/histogram.py.
    """

    group = _of_group()
    leg = models.CharField(_("leg"), max_length=9, choices=Leg.choices)
    messages = models.BigIntegerField(_("messages"))
    mean = SecondsField(_("mean"))
    worst = SecondsField(_("longest"))
    histogram = models.TextField(_("histogram"))

    class Meta(Level.Meta):
        db_table = "ems_monitoring_latency_level"
        verbose_name = _("latency of hours and days")
        verbose_name_plural = verbose_name
        constraints = _place("ems_latency_level_place", "group", "leg")


class ErrorLevel(Level):
    """How often a group failed with a class of error in an hour or a day."""

    group = _of_group()
    error_class = NameField(_("error class"), max_length=255)
    failed = models.BigIntegerField(_("failed"))
    dead = models.BigIntegerField(_("dead"))

    class Meta(Level.Meta):
        db_table = "ems_monitoring_error_level"
        verbose_name = _("error classes of hours and days")
        verbose_name_plural = verbose_name
        constraints = _place("ems_error_level_place", "group", "error_class")


class BacklogLevel(Level):
    """How far behind a group was at most in an hour or a day.

    ``least`` is the lowest figure of those whose highest is ``behind``.
    """

    group = _of_group()
    samples = models.PositiveIntegerField(_("samples"))
    behind = models.BigIntegerField(_("behind at most"), null=True, blank=True)
    least = models.BigIntegerField(_("behind at least"), null=True, blank=True)
    waiting = models.BigIntegerField(_("retries"))
    dead = models.BigIntegerField(_("dead"))
    age_seconds = SecondsField(_("age"), null=True, blank=True)

    class Meta(Level.Meta):
        db_table = "ems_monitoring_backlog_level"
        verbose_name = _("backlogs of hours and days")
        verbose_name_plural = verbose_name
        constraints = _place("ems_backlog_level_place", "group")

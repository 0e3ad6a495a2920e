"""Defines AlarmRule: a rule of the project's own, or its changes to a default rule."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, URLValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from monitoring.models.alarm import MAX_RULE, MAX_TEXT, Metric, Severity
from streams.models.fields import NameField, TopicOrGroupField, UtcDateTimeField
from streams.models.namespaces import OwnManager

# What is measured by group, and by topic at least. The others know neither.
OF_GROUPS = frozenset(
    {
        *(Metric.EXPIRED, Metric.SLOW_CALL, Metric.LAG, Metric.LAG_AGE),
        *(Metric.BLOCKED, Metric.DEAD_NEW, Metric.NO_CONSUMER, Metric.MISSING),
    }
)
OF_TOPICS = OF_GROUPS | {Metric.NOT_SEQUENCED, Metric.UNREAD, Metric.REWOUND}


class Operator(models.TextChoices):
    ABOVE = ">", _("above")
    BELOW = "<", _("below")


class AlarmRule(models.Model):
    """A rule. What is empty follows the default of its metric, also after an upgrade.

    A rule with the name of a default rule takes its place. Deleted, it gives the default its
    place back.
    """

    name = TopicOrGroupField(_("name"), max_length=MAX_RULE)
    metric = models.CharField(_("metric"), max_length=32, choices=Metric.choices)
    enabled = models.BooleanField(
        _("enabled"), null=True, blank=True, help_text=_("Unknown: as the default.")
    )
    topic = NameField(
        _("topic"), max_length=127, default="", blank=True, help_text=_("Empty: all topics.")
    )
    group = NameField(
        _("group"), max_length=127, default="", blank=True, help_text=_("Empty: all groups.")
    )
    operator = models.CharField(
        _("operator"), max_length=1, choices=Operator.choices, default=Operator.ABOVE
    )
    threshold = models.FloatField(
        _("threshold"),
        null=True,
        blank=True,
        help_text=_("Ages in seconds, sizes in bytes, shares of 1, times of steps in periods."),
    )
    for_seconds = models.PositiveIntegerField(
        _("for seconds"),
        null=True,
        blank=True,
        help_text=_("The condition must hold for this long before the rule fires."),
    )
    severity = models.CharField(
        _("severity"), max_length=8, choices=Severity.choices, default="", blank=True
    )
    channels = models.ManyToManyField(
        "ems_monitoring.AlarmChannel",
        verbose_name=_("channels"),
        blank=True,
        db_table="ems_monitoring_alarm_rule_channel",
        help_text=_("None chosen: all channels."),
    )
    remind_hours = models.PositiveIntegerField(
        _("remind after hours"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Tell the channels again while it fires and nobody has acknowledged it."),
    )
    muted_until = UtcDateTimeField(_("muted until"), null=True, blank=True)
    runbook = models.CharField(
        _("runbook"),
        max_length=MAX_TEXT,
        default="",
        blank=True,
        validators=[URLValidator(schemes=["http", "https"])],
        help_text=_("The URL of what to do."),
    )

    objects = OwnManager["AlarmRule"]()

    class Meta:
        db_table = "ems_monitoring_alarm_rule"
        verbose_name = _("alarm rule")
        verbose_name_plural = _("alarm rules")
        permissions = (("mute_alarmrule", _("Can mute alarm rules")),)
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_alarm_rule_name"),)

    def __str__(self) -> str:
        return str(self.name)

    def clean(self) -> None:
        if self.name in Metric.values and self.metric != self.name:
            text = _("The rule of this name has the metric “%s”: choose another name.")
            raise ValidationError({"name": text % self.name})
        if self.group and self.metric not in OF_GROUPS:
            raise ValidationError({"group": _("This metric is not measured by group.")})
        if self.topic and self.metric not in OF_TOPICS:
            raise ValidationError({"topic": _("This metric is not measured by topic.")})

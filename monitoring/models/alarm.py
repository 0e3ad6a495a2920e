"""Defines Alarm: one firing of a rule for one subject, from its first sign to its end."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.conf import database
from streams.models.fields import NameField, TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.models.namespaces import own

# In characters. A subject is at most the name of a group and the name of its topic.
MAX_RULE, MAX_SUBJECT, MAX_TEXT = 64, 300, 500


class AlarmState(models.TextChoices):
    PENDING = "pending", _("Pending")  # the condition holds, and not for long enough yet
    FIRING = "firing", _("Firing")
    ACKNOWLEDGED = "acknowledged", _("Acknowledged")
    RESOLVED = "resolved", _("Resolved")


class Severity(models.TextChoices):
    CRITICAL = "critical", _("Critical")
    WARNING = "warning", _("Warning")
    INFO = "info", _("Info")


class Metric(models.TextChoices):
    """What a rule can measure; monitoring/alarms/metrics.py says how."""

    EXPIRED = "expired", _("Calls that ended by timeout or death, in 5 minutes")
    SLOW_CALL = "slow_call", _("Longest running call, as a share of its timeout")
    LAG = "lag", _("Messages that a group is behind")
    LAG_AGE = "lag_age", _("Age of the oldest message that a group has not claimed")
    BLOCKED = "blocked", _("Time since the message failed that blocks an ordered group")
    DEAD_NEW = "dead_new", _("New dead letters of a group, in 5 minutes")
    NO_CONSUMER = "no_consumer", _("Messages that wait for a group without a live consumer")
    NOT_SEQUENCED = "not_sequenced", _("Age of the oldest message without an offset")
    STEP_LATE = "step_late", _("Time since a step ran")
    PURGE_LATE = "purge_late", _("Time since the purge ended")
    ROLLUP_LATE = "rollup_late", _("Time since a roll-up ended")
    MISSING = "missing", _("Messages that were gone when they were to be read, in an hour")
    AUDIT_FINDING = "audit_finding", _("Findings of the continuous audit, in a day")
    RECONCILE = "reconcile", _("Findings of the last reconcile")
    PREPARED = "prepared", _("Prepared messages that wait for a person")
    UNREAD = "unread", _("Share of its retention that a message has used unread by a Spark stream")
    REWOUND = "rewound", _("Times a log was rewound, in a day")
    DISK = "disk", _("Size of a table")


class AlarmQuerySet(models.QuerySet["Alarm"]):
    def unresolved(self) -> AlarmQuerySet:
        """Return the alarms that fire, acknowledged or not, and those that are pending."""
        return self.filter(slot=0)

    def firing(self) -> AlarmQuerySet:
        """Return the alarms that fire, acknowledged or not."""
        return self.unresolved().exclude(state=AlarmState.PENDING)


class AlarmManager(models.Manager["Alarm"]):
    """The alarms of this namespace."""

    def get_queryset(self) -> AlarmQuerySet:
        return AlarmQuerySet(self.model, using=self._db).filter(own("rule"))


class Alarm(models.Model):
    """One firing. There is at most one unresolved row for a rule and a subject.

    ``slot`` keeps that promise: it is 0 until the alarm is resolved, then empty, and (rule,
    subject, slot) is unique. Every change of the state names the state that it starts from.
    """

    rule = TopicOrGroupField(_("rule"), max_length=MAX_RULE)
    metric = models.CharField(_("metric"), max_length=32)
    subject = NameField(_("subject"), max_length=MAX_SUBJECT, default="", blank=True)
    topic = NameField(_("topic"), max_length=127, default="", blank=True)
    group = NameField(_("group"), max_length=127, default="", blank=True)
    slot = models.PositiveSmallIntegerField(_("slot"), null=True, default=0, editable=False)
    severity = models.CharField(_("severity"), max_length=8, choices=Severity.choices)
    state = models.CharField(
        _("state"), max_length=12, choices=AlarmState.choices, default=AlarmState.PENDING
    )
    value = models.FloatField(_("value"), help_text=_("The last one that was measured."))
    threshold = models.FloatField(_("threshold"))
    detail = models.CharField(_("detail"), max_length=MAX_TEXT, default="", blank=True)
    runbook = models.CharField(_("runbook"), max_length=MAX_TEXT, default="", blank=True)
    since = UtcDateTimeField(_("since"), default=UtcNow, help_text=_("When the condition began."))
    fired_at = UtcDateTimeField(_("fired at"), null=True, blank=True)
    told_at = UtcDateTimeField(
        _("told at"),
        null=True,
        blank=True,
        help_text=_("When the channels were last told that it fires; empty while it is muted."),
    )
    acknowledged_at = UtcDateTimeField(_("acknowledged at"), null=True, blank=True)
    acknowledged_by = models.CharField(_("acknowledged by"), max_length=190, default="", blank=True)
    note = models.CharField(_("note"), max_length=MAX_TEXT, default="", blank=True)
    resolved_at = UtcDateTimeField(_("resolved at"), null=True, blank=True)

    objects = AlarmManager.from_queryset(AlarmQuerySet)()

    class Meta:
        db_table = "ems_monitoring_alarm"
        verbose_name = _("alarm")
        verbose_name_plural = _("alarms")
        default_permissions = ("view",)
        permissions = (("acknowledge_alarm", _("Can acknowledge alarms")),)
        constraints = (
            models.UniqueConstraint(
                fields=["rule", "subject", "slot"], name="ems_alarm_unresolved"
            ),
        )
        indexes = (
            models.Index(fields=["slot", "state"], name="ems_alarm_slot"),
            models.Index(fields=["resolved_at"], name="ems_alarm_resolved"),
        )

    def __str__(self) -> str:
        return f"{self.about}: {self.label}" if self.about else self.label

    @property
    def about(self) -> str:
        """Return its subject as people read it; ``subject`` is the key of the row."""
        if not self.group:
            return str(self.subject)
        return gettext("%(group)s on %(topic)s") % {"group": self.group, "topic": self.topic}

    @property
    def label(self) -> str:
        """Return what is measured, in words; of a metric that no longer exists, its name."""
        return str(Metric(self.metric).label if self.metric in Metric.values else self.metric)

    @property
    def is_firing(self) -> bool:
        return self.state in (AlarmState.FIRING, AlarmState.ACKNOWLEDGED)

    def acknowledge(self, who: str, note: str = "") -> bool:
        """Record that somebody takes care of it; False if it does not fire, or somebody does."""
        mine = Alarm.objects.using(self._state.db or database())
        return bool(
            mine.filter(pk=self.pk, state=AlarmState.FIRING, slot=0).update(
                state=AlarmState.ACKNOWLEDGED,
                acknowledged_at=UtcNow(),
                acknowledged_by=who[:190],
                note=note[:MAX_TEXT],
            )
        )

"""Defines AlarmNotification: what to tell one channel about one alarm."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.db import models
from django.db.models import Exists, F, OuterRef
from django.utils.translation import gettext_lazy as _

from streams.conf import database
from streams.models.fields import LooseForeignKey, UtcDateTimeField, UtcNow
from streams.models.namespaces import own

# A process that sends may die. After this time another one sends again.
LEASE = timedelta(seconds=60)


class Event(models.TextChoices):
    FIRED = "fired", _("Fired")
    REMINDER = "reminder", _("Still fires")
    RESOLVED = "resolved", _("Resolved")
    TEST = "test", _("Test")


class NotificationState(models.TextChoices):
    WAITING = "waiting", _("Waiting")
    SENT = "sent", _("Sent")
    GIVEN_UP = "given up", _("Given up")


def new_uid() -> str:
    return secrets.token_hex(16)


class NotificationQuerySet(models.QuerySet["AlarmNotification"]):
    def waiting(self) -> NotificationQuerySet:
        return self.filter(state=NotificationState.WAITING)

    def due(self) -> NotificationQuerySet:
        """Return what is due. Of one alarm a channel is told in order, so the oldest goes first."""
        before = AlarmNotification.objects.using(self.db).waiting()
        before = before.filter(alarm=OuterRef("alarm"), channel=OuterRef("channel"))
        before = before.filter(pk__lt=OuterRef("pk"))
        due = self.waiting().filter(due_at__lte=UtcNow(), channel__enabled=True)
        return due.filter(~Exists(before))


class NotificationManager(models.Manager["AlarmNotification"]):
    """The notifications of this namespace."""

    def get_queryset(self) -> NotificationQuerySet:
        rows = NotificationQuerySet(self.model, using=self._db)
        return rows.filter(own("channel__name"))


class AlarmNotification(models.Model):
    """A notification, written in the transaction that changes its alarm.

    ``attempts`` is the token of who sends it: each attempt begins by raising it, and only who has
    raised it to this number may note how the attempt ended.
    """

    uid = models.CharField(_("uid"), max_length=32, default=new_uid)
    alarm = LooseForeignKey(
        "ems_monitoring.Alarm", null=True, blank=True, verbose_name=_("alarm"), related_name="+"
    )
    channel = LooseForeignKey("ems_monitoring.AlarmChannel", verbose_name=_("channel"))
    event = models.CharField(_("event"), max_length=8, choices=Event.choices)
    state = models.CharField(
        _("state"),
        max_length=8,
        choices=NotificationState.choices,
        default=NotificationState.WAITING,
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    created_at = UtcDateTimeField(_("created at"), default=UtcNow)
    due_at = UtcDateTimeField(_("due at"), default=UtcNow)
    sent_at = UtcDateTimeField(_("sent at"), null=True, blank=True)
    error = models.CharField(_("error"), max_length=500, default="", blank=True)

    objects = NotificationManager.from_queryset(NotificationQuerySet)()

    class Meta:
        db_table = "ems_monitoring_alarm_notification"
        verbose_name = _("alarm notification")
        verbose_name_plural = _("alarm notifications")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=["state", "due_at"], name="ems_notification_due"),
            models.Index(fields=["alarm", "channel", "state"], name="ems_notification_order"),
            models.Index(fields=["created_at"], name="ems_notification_created"),
        )

    def __str__(self) -> str:
        return f"{self.event} → {self.channel_id}"

    def take(self) -> bool:
        """Begin an attempt; False if another process has begun one."""
        mine = self._as_read().update(attempts=F("attempts") + 1, due_at=UtcNow(LEASE))
        self.attempts += mine
        return bool(mine)

    def note_sent(self) -> bool:
        """End the attempt well; False if the lease was over and another process sends it."""
        sent = {"state": NotificationState.SENT, "sent_at": UtcNow(), "error": ""}
        return bool(self._as_read().update(**sent))

    def note_failed(self, error: str, delay: timedelta | None) -> bool:
        """End the attempt: another one is due after ``delay``; None gives up."""
        changes: dict[str, object] = {"error": error[:500]}
        if delay is None:
            changes["state"] = NotificationState.GIVEN_UP
        else:
            changes["due_at"] = UtcNow(delay)
        return bool(self._as_read().update(**changes))

    def _as_read(self) -> NotificationQuerySet:
        # By its own columns only: an UPDATE with a join would lock the channel, too.
        rows = NotificationQuerySet(AlarmNotification, using=self._state.db or database())
        return rows.waiting().filter(pk=self.pk, attempts=self.attempts)

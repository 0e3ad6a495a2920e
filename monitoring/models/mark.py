"""Defines Mark: what happened at an instant, as the charts mark it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, UtcDateTimeField, UtcNow
from streams.models.namespaces import OfNamespace, namespace

MAX_TEXT = 500


class MarkKind(models.TextChoices):
    """What is marked. That of what an operator has done is the name of the act."""

    DEPLOYMENT = "deployment", _("Deployment")
    RESET = "reset", _("Reset")
    UNDO = "undo", _("Undo of a reset")
    PAUSE = "pause", _("Pause")
    RESUME = "resume", _("End of a pause")
    REPLAY = "replay", _("Replay")
    SKIP = "skip", _("Skip")
    GROW = "grow", _("New partitions")
    PURGE = "purge", _("Forced purge")


class MarkManager(OfNamespace["Mark"]):
    """The marks of this namespace."""


class Mark(models.Model):
    """One thing that happened, to ``groups`` or, if there are none, to all groups of ``topic``.

    A deployment is the start of ``count`` processes that run the same groups.
    """

    namespace = models.CharField(_("namespace"), max_length=16, default=namespace, blank=True)
    kind = models.CharField(_("kind"), max_length=16, choices=MarkKind.choices)
    at = UtcDateTimeField(_("at"), default=UtcNow)
    until = UtcDateTimeField(_("until"), default=UtcNow)
    topic = LooseForeignKey("ems.Topic", null=True, blank=True, verbose_name=_("topic"))
    groups = models.JSONField(_("groups"), default=list)
    count = models.PositiveIntegerField(_("count"), default=1)
    text = models.CharField(_("text"), max_length=MAX_TEXT, default="", blank=True)
    who = models.CharField(_("by"), max_length=190, default="", blank=True)

    objects = MarkManager()

    class Meta:
        db_table = "ems_monitoring_mark"
        verbose_name = _("mark")
        verbose_name_plural = _("marks")
        default_permissions = ("view",)
        indexes = (models.Index(fields=["at"], name="ems_mark_at"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.at:%Y-%m-%d %H:%M}"

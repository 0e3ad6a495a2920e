"""Defines HotKey: one of the keys with the most messages of a topic in an hour."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField
from streams.rules.names import MAX_KEY


class HotKey(models.Model):
    """One of the keys that had most messages of a topic in an hour.

    The places of a topic and hour are replaced together, if as many messages were counted.
    """

    topic = LooseForeignKey("ems.Topic", verbose_name=_("topic"))
    hour = UtcDateTimeField(_("hour"))
    place = models.PositiveIntegerField(_("place"))
    key = NameField(_("key"), max_length=MAX_KEY)
    messages = models.BigIntegerField(_("messages"))
    bytes = models.BigIntegerField(_("bytes"))
    share = models.FloatField(_("share"), help_text=_("Of the topic's messages in this hour."))
    total = models.BigIntegerField(
        _("of"),
        default=0,
        db_default=0,
        help_text=_("All messages of the topic in this hour, when counted."),
    )

    class Meta:
        db_table = "ems_monitoring_hot_key"
        verbose_name = _("hot key")
        verbose_name_plural = _("hot keys")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["topic", "hour", "place"], name="ems_hot_key_place"),
        )
        indexes = (models.Index(fields=["hour"], name="ems_hot_key_hour"),)

    def __str__(self) -> str:
        return f"{self.topic_id} {self.hour:%Y-%m-%d %H} {self.key}"

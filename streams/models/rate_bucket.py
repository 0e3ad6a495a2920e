"""Defines RateBucket: when the next message of a group with a rate may begin."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField
from streams.rules.names import MAX_KEY


class RateBucket(models.Model):
    """The slots of a group, or of one key of it: those before ``next_slot`` are taken.

    A slot is an instant at which one message may begin. Instants are in microseconds since 1970 on
    the server's clock. Every take is one UPDATE, and the lock of the row is the last one of its
    transaction. ``taken`` is how many the last take has got. ``queued_until``: where the rate has a
    key, the messages that have come too early wait for the slots before it.
    """

    group = LooseForeignKey("ems.ConsumerGroup", related_name="buckets", verbose_name=_("group"))
    key = NameField(_("key"), max_length=MAX_KEY, blank=True, default="")
    next_slot = models.BigIntegerField(_("next slot"), default=0)
    taken = models.PositiveIntegerField(_("taken"), default=0)
    queued_until = models.BigIntegerField(_("queued until"), default=0)

    class Meta:
        db_table = "ems_rate"
        verbose_name = _("rate bucket")
        verbose_name_plural = _("rate buckets")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["group", "key"], name="ems_rate_place"),)

    def __str__(self) -> str:
        return f"{self.group_id}: {self.key}" if self.key else f"{self.group_id}"

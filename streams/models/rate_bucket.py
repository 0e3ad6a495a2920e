"""Defines RateBucket: when the next message of a group with a rate may begin."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey


class RateBucket(models.Model):
    """The slots of a group with a rate: those before ``next_slot`` are taken.

    A slot is an instant at which one message may begin, in microseconds since 1970 on the server's
    clock. Every take is one UPDATE, and the lock of the row is the last one of its transaction.
    ``taken`` is how many the last take has got.
    """

    group = LooseForeignKey("ems.ConsumerGroup", related_name="buckets", verbose_name=_("group"))
    next_slot = models.BigIntegerField(_("next slot"), default=0)
    taken = models.PositiveIntegerField(_("taken"), default=0)

    class Meta:
        db_table = "ems_rate"
        verbose_name = _("rate bucket")
        verbose_name_plural = _("rate buckets")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["group"], name="ems_rate_place"),)

    def __str__(self) -> str:
        return f"{self.group_id}"

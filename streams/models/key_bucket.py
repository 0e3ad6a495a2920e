"""Defines KeyBucket: when the next message of a key may begin, in a group with a rate for each."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey


class KeyBucket(models.Model):
    """The slots of a key of a group with a rate for each key: those before ``next_slot`` are taken.

    Those that may not begin yet come again one after the other; ``queued_until`` is when the next
    one of them may. Until then what is new comes after them. Both are in microseconds since 1970
    on the server's clock, and changed under the lock of the row, the last one of its transaction.
    """

    group = LooseForeignKey(
        "ems.ConsumerGroup", related_name="key_buckets", verbose_name=_("group")
    )
    key_hash = models.BigIntegerField(_("hash of the key"))
    next_slot = models.BigIntegerField(_("next slot"), default=0)
    queued_until = models.BigIntegerField(_("queued until"), default=0)

    class Meta:
        db_table = "ems_rate_key"
        verbose_name = _("rate bucket of a key")
        verbose_name_plural = _("rate buckets of keys")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["group", "key_hash"], name="ems_rate_key_place"),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.key_hash}"

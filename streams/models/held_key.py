"""Defines HeldKey: a key of a group by key, whose messages wait for one that has failed."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField, UtcNow
from streams.rules.names import MAX_KEY


class HeldKey(models.Model):
    """A key whose messages wait in a partition, and the one that they wait for.

    Of the retries with this hash at most one has a due time, that of ``head_offset``, and none if
    that is ``dead``; the others are parked. Who writes any of them locks this row first: so the
    next one is let go in the transaction that ends the one before, and nothing is parked behind a
    key that is free.
    """

    group = LooseForeignKey("ems.ConsumerGroup", related_name="held_keys", verbose_name=_("group"))
    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    key_hash = models.BigIntegerField(_("hash of the key"))
    key = NameField(_("key"), max_length=MAX_KEY, help_text=_("The first one with this hash."))
    head_offset = models.BigIntegerField(
        _("message"), help_text=_("The offset of the message for which the others wait.")
    )
    dead = models.BooleanField(
        _("dead"),
        default=False,
        db_default=False,
        help_text=_("That message is a dead letter, which holds the key until it is redriven."),
    )
    held_at = UtcDateTimeField(_("held since"), default=UtcNow)

    class Meta:
        db_table = "ems_held_key"
        verbose_name = _("held key")
        verbose_name_plural = _("held keys")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["group", "partition", "key_hash"], name="ems_held_key_place"
            ),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition_id}:{self.key}"

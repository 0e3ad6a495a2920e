"""Defines KeyEntry: one entry of the index of keys, for topics that ask for it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField
from streams.rules.names import MAX_KEY


class KeyEntry(models.Model):
    """Which key the message at an offset has.

    The sequencer writes it in the transaction that gives the offset, if the topic has index_keys;
    the purge deletes it with the message.
    """

    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    key = NameField(_("key"), max_length=MAX_KEY)
    offset = models.BigIntegerField(_("offset"))

    class Meta:
        db_table = "ems_key"
        verbose_name = _("indexed key")
        verbose_name_plural = _("indexed keys")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["partition", "offset"], name="ems_key_place"),
        )
        indexes = (models.Index(fields=["partition", "key", "offset"], name="ems_key_search"),)

    def __str__(self) -> str:
        return f"{self.key}: {self.partition_id}@{self.offset}"

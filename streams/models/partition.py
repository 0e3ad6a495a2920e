"""Defines Partition: one ordered log of a topic."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import UtcDateTimeField


class Partition(models.Model):
    """One ordered log of a topic, which has the offsets first_offset … next_offset - 1."""

    topic = models.ForeignKey(
        "ems.Topic", models.PROTECT, related_name="partitions", verbose_name=_("topic")
    )
    number = models.PositiveIntegerField(_("number"), default=0)
    next_offset = models.BigIntegerField(_("next offset"), default=0)
    first_offset = models.BigIntegerField(
        _("first offset"), default=0, help_text=_("Messages below it have been purged.")
    )
    archived_offset = models.BigIntegerField(
        _("archived offset"),
        default=0,
        db_default=0,
        help_text=_("Messages below it are in the archive, and verified."),
    )
    keys_from = models.BigIntegerField(
        _("keys indexed from"),
        null=True,
        editable=False,
        help_text=_("The index of keys has the messages from this offset on; empty: none."),
    )
    epoch = models.PositiveIntegerField(
        _("epoch"),
        default=0,
        db_default=0,
        editable=False,
        help_text=_("How often the log was rewound: see the rewinds of this partition."),
    )
    server = models.CharField(
        _("server"),
        max_length=64,
        default="",
        db_default="",
        editable=False,
        help_text=_("The server on which the last offsets were given."),
    )
    last_sequenced_at = UtcDateTimeField(_("last sequenced"), null=True, editable=False)

    class Meta:
        db_table = "ems_partition"
        verbose_name = _("partition")
        verbose_name_plural = _("partitions")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["topic", "number"], name="ems_partition_number"),
        )

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"

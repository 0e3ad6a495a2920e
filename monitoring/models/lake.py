"""Defines the tables of the lake: its files, and how far each partition is in it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.rules.names import MAX_NAME


class LakeFile(models.Model):
    """One file of the lake. Readers read the files that have not left it, and no others."""

    topic = TopicOrGroupField(_("topic"), max_length=MAX_NAME)
    day = models.DateField(_("day"), help_text=_("In UTC, in which the messages were sequenced."))
    path = models.CharField(_("path"), max_length=1000, help_text=_("Below the lake's folder."))
    messages = models.BigIntegerField(_("messages"))
    bytes = models.BigIntegerField(_("bytes"), help_text=_("Of the bodies."))
    size = models.BigIntegerField(_("size in bytes"), help_text=_("Of the file."))
    version = models.PositiveIntegerField(_("version"), help_text=_("Of the file's columns."))
    added_at = UtcDateTimeField(_("added"), default=UtcNow)
    retired_at = UtcDateTimeField(
        _("retired"),
        null=True,
        blank=True,
        help_text=_("When it left the lake: other files, or the archive, hold its messages."),
    )

    class Meta:
        db_table = "ems_monitoring_lake"
        verbose_name = _("file of the lake")
        verbose_name_plural = _("files of the lake")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=["topic", "day"], name="ems_lake_day"),
            models.Index(fields=["retired_at"], name="ems_lake_retired"),
        )

    def __str__(self) -> str:
        return f"{self.topic} {self.path}"


class LakePosition(models.Model):
    """The offsets of a partition that have come into the lake, without a gap.

    It moves in the transaction that adds the files, and only from where it was read: so each
    message is in the lake once, whoever writes it.
    """

    partition = models.OneToOneField(
        "ems.Partition",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        primary_key=True,
        verbose_name=_("partition"),
    )
    first_offset = models.BigIntegerField(_("first offset"))
    next_offset = models.BigIntegerField(_("next offset"))

    class Meta:
        db_table = "ems_monitoring_lake_position"
        verbose_name = _("position of the lake")
        verbose_name_plural = _("positions of the lake")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.partition_id}@{self.next_offset}"

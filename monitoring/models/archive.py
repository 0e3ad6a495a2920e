"""Defines the tables of the archive: what it holds, and what was done exactly once."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import (
    HashField,
    LooseForeignKey,
    NameField,
    TopicOrGroupField,
    UtcDateTimeField,
    UtcNow,
)
from streams.models.message import BodyType
from streams.rules.names import MAX_KEY, MAX_NAME, MAX_TAG


class ArchivedDay(models.Model):
    """One day of one partition that is in the archive: counted, hashed and compared.

    It has the name of the topic, too, since the archive is kept longer than the topic.
    """

    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    day = models.DateField(_("day"), help_text=_("In UTC, in which the messages were sequenced."))
    topic = TopicOrGroupField(_("topic"), max_length=MAX_NAME)
    number = models.PositiveIntegerField(_("number"))
    first_offset = models.BigIntegerField(_("first offset"))
    end_offset = models.BigIntegerField(_("end offset"), help_text=_("The first one not in it."))
    messages = models.BigIntegerField(_("messages"))
    bytes = models.BigIntegerField(_("bytes"))
    hash = models.CharField(_("hash"), max_length=40, help_text=_("The sum of all rows' xxHash64."))
    path = models.CharField(_("path"), max_length=1000)
    archived_at = UtcDateTimeField(_("archived"), default=UtcNow)

    class Meta:
        db_table = "ems_monitoring_archive"
        verbose_name = _("archived day")
        verbose_name_plural = _("archived days")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["partition", "day"], name="ems_archive_day"),
        )
        indexes = (models.Index(fields=["topic", "day"], name="ems_archive_topic"),)

    def __str__(self) -> str:
        return f"{self.topic}/{self.number} {self.day}"

    @property
    def last_offset(self) -> int:
        return self.end_offset - 1


class LedgerEntry(models.Model):
    """A batch of a stream, or a replay, whose rows are in the database.

    It is written in the transaction that writes the rows, so nothing is written twice or in part.
    """

    name = NameField(_("name"), max_length=190)
    batch = models.BigIntegerField(_("batch"))
    done_at = UtcDateTimeField(_("done"), default=UtcNow)

    class Meta:
        db_table = "ems_monitoring_ledger"
        verbose_name = _("ledger entry")
        verbose_name_plural = _("ledger entries")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["name", "batch"], name="ems_ledger_name"),)

    def __str__(self) -> str:
        return f"{self.name} {self.batch}"


class StagedMessage(models.Model):
    """A row of a Spark write before it is sent; none is sent before all are here."""

    mark = models.CharField(
        _("mark"), max_length=32, help_text=_("Of the write, and of the attempt of the task.")
    )
    topic = LooseForeignKey("ems.Topic", verbose_name=_("topic"))
    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    due_at = UtcDateTimeField(_("due at"), null=True, help_text=_("Empty: at once."))
    key = NameField(_("key"), max_length=MAX_KEY, null=True)
    tag = NameField(_("tag"), max_length=MAX_TAG)
    headers = models.TextField(_("headers"), null=True)  # noqa: DJ001 - None is not "null"
    body = models.BinaryField(_("body"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))
    dedup_hash = HashField(_("SHA-256 of the dedup key"), null=True)
    staged_at = UtcDateTimeField(_("staged at"), default=UtcNow)

    class Meta:
        db_table = "ems_monitoring_staged"
        verbose_name = _("staged message")
        verbose_name_plural = _("staged messages")
        default_permissions = ("view",)
        indexes = (models.Index(fields=["mark"], name="ems_staged_mark"),)

    def __str__(self) -> str:
        return f"{self.mark} {self.pk}"


class ReplayedMessage(models.Model):
    """A message of the archive before a replay sends it; none is sent before all are here."""

    replay = models.CharField(_("replay"), max_length=32)
    source = models.PositiveIntegerField(_("source partition"))
    offset = models.BigIntegerField(_("offset"))
    target = models.PositiveIntegerField(_("target partition"))
    key = NameField(_("key"), max_length=MAX_KEY, null=True)
    tag = NameField(_("tag"), max_length=MAX_TAG)
    headers = models.TextField(_("headers"), null=True)  # noqa: DJ001 - None is not "null"
    body = models.BinaryField(_("body"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))

    class Meta:
        db_table = "ems_monitoring_replay"
        verbose_name = _("replayed message")
        verbose_name_plural = _("replayed messages")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["replay", "source", "offset"], name="ems_replay_place"),
        )

    def __str__(self) -> str:
        return f"{self.replay} {self.source}:{self.offset}"

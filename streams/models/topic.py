"""Defines Topic: a named stream, with its access and retention."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from streams.conf import database
from streams.errors import InvalidName
from streams.models.fields import TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OwnManager
from streams.rules.names import MAX_NAME, validated_name

# A century, in seconds. A longer one may lead to dates outside the range of a server's DATETIME.
MAX_RETENTION = 36525 * 86400


class Access(models.TextChoices):
    READ_WRITE = "read-write", _("Read and write")
    WRITE_ONLY = "write-only", _("Write only")
    READ_ONLY = "read-only", _("Read only (paused for producers)")
    DENIED = "denied", _("Denied")


# The access of a topic that takes messages.
WRITABLE = (Access.READ_WRITE, Access.WRITE_ONLY)


class Topic(models.Model):
    """A named stream, with its access and retention."""

    name = TopicOrGroupField(_("name"), max_length=MAX_NAME)
    access = models.CharField(
        _("access"), max_length=10, choices=Access.choices, default=Access.READ_WRITE
    )
    retention_seconds = models.PositiveBigIntegerField(
        _("retention in seconds"),
        null=True,
        blank=True,
        help_text=_(
            "How long sequenced messages are kept; 0: for ever. If all of these fields are empty,"
            " the setting messageRetentionDays holds."
        ),
    )
    retention_count = models.PositiveBigIntegerField(
        _("retention in messages"),
        null=True,
        blank=True,
        help_text=_("How many messages of each partition are kept at most; empty: all."),
    )
    retention_consumed = models.BooleanField(
        _("purge what is consumed"),
        default=False,
        db_default=False,
        help_text=_("Messages that every group has finished are not kept any longer."),
    )
    archive = models.BooleanField(
        _("archive"),
        default=False,
        db_default=False,
        help_text=_("Nothing is purged before the Spark job “archive” has it in the archive."),
    )
    index_keys = models.BooleanField(
        _("index keys"),
        default=False,
        db_default=False,
        help_text=_(
            "Messages sequenced from now on are found by their key at once; it costs a row for each"
            " message that has a key."
        ),
    )
    created_at = UtcDateTimeField(_("created"), default=UtcNow, editable=False)

    objects = OwnManager["Topic"]()

    class Meta:
        db_table = "ems_topic"
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        default_permissions = ("view", "add", "change")
        permissions = (
            ("produce_topic", _("Can send test messages to topics")),
            ("grow_topic", _("Can add partitions to topics")),
            ("retire_topic", _("Can retire topics")),
            ("delete_topic", _("Can delete topics")),
        )
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_topic_name"),)

    def __str__(self) -> str:
        return str(self.name)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the topic; a new one gets its first partition in the same transaction."""
        adding = self._state.adding
        with transaction.atomic(using=kwargs.get("using") or self._state.db or database()):
            super().save(*args, **kwargs)
            if adding:
                # By id: with the object Django would ask the project's database routers.
                self.partitions.model.objects.using(self._state.db).create(topic_id=self.pk)

    def clean(self) -> None:
        if self._state.adding and self.name:
            try:
                validated_name(self.name, "topic", MAX_NAME)
            except InvalidName as error:
                raise ValidationError({"name": str(error)}) from error
        self._refuse_to_open_what_moves()
        if self.retention_count is not None and self.retention_count < 1:
            raise ValidationError({"retention_count": _("At least 1; empty is all.")})
        if self.retention_seconds is not None and self.retention_seconds > MAX_RETENTION:
            text = _("At most %d, a century.") % MAX_RETENTION
            raise ValidationError({"retention_seconds": text})

    def _refuse_to_open_what_moves(self) -> None:
        """Keep a topic closed that is being moved to another database, or has moved there."""
        using = self._state.db
        if self._state.adding or using is None or self.access not in WRITABLE:
            return
        move = apps.get_model(self._meta.app_label, "Move").last_of(self.name, using)
        if move is None or move.source != using:
            return
        text = _(
            "It has moved to %(alias)s, or is being moved: “ems_topics move” finishes that, or"
            " gives it up by --give-up."
        )
        raise ValidationError({"access": text % {"alias": move.target}})

    @property
    def readable(self) -> bool:
        return self.access in (Access.READ_WRITE, Access.READ_ONLY)

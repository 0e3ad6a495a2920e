"""Defines Message: one message, in the inbox while it has no offset, then in the log."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams import body
from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField, UtcNow
from streams.models.with_body import WithBody
from streams.rules.names import MAX_KEY, MAX_PRODUCER, MAX_TAG

# The due_at of a message that is due at once. It is the same for all of them, so that the inbox
# index gives them ordered by id without a sort.
IMMEDIATE = datetime(1970, 1, 1, tzinfo=UTC)


class BodyType(models.TextChoices):
    JSON = body.JSON, _("JSON")
    TEXT = body.TEXT, _("text")
    BYTES = body.BYTES, _("bytes")


class MessageQuerySet(models.QuerySet["Message"]):
    def inbox(self) -> MessageQuerySet:
        return self.filter(offset=None)


class Message(WithBody):
    """A message: in the inbox while it has no offset, in the log of its partition after."""

    partition = LooseForeignKey(
        "ems.Partition", related_name="messages", verbose_name=_("partition")
    )
    offset = models.BigIntegerField(_("offset"), null=True, editable=False)
    due_at = UtcDateTimeField(
        _("due at"),
        null=True,
        default=IMMEDIATE,
        help_text=_("1970: at once."),
    )
    key = NameField(_("key"), max_length=MAX_KEY, null=True, blank=True)
    tag = NameField(_("tag"), max_length=MAX_TAG, default="", blank=True)
    headers = models.JSONField(_("headers"), null=True, blank=True)
    body = models.BinaryField(_("body"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))
    producer = models.CharField(_("producer"), max_length=MAX_PRODUCER)
    created_at = UtcDateTimeField(_("sent"), default=UtcNow)
    sequenced_at = UtcDateTimeField(_("sequenced"), null=True, editable=False)

    objects = MessageQuerySet.as_manager()

    class Meta:
        db_table = "ems_msg"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        default_permissions = ("view",)  # only EMS writes the rows
        permissions = (
            ("view_body", _("Can view bodies of messages and dead letters")),
            ("cancel_message", _("Can cancel delayed messages")),
        )
        constraints = (models.UniqueConstraint(fields=["partition", "offset"], name="ems_msg_log"),)
        indexes = (models.Index(fields=["partition", "offset", "due_at"], name="ems_msg_inbox"),)

    def __str__(self) -> str:
        return f"{self.partition_id}:{'-' if self.offset is None else self.offset}"

"""Defines DeadMessage: a message that a group gave up on, in its own copy."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from django.db import connections, models
from django.utils.translation import gettext_lazy as _

from streams.conf import database
from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import execute
from streams.errors import Reject, storable, text_of
from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField, UtcNow
from streams.models.letter_edit import LetterEdit
from streams.models.message import BodyType
from streams.models.with_body import WithBody
from streams.rules.names import MAX_KEY, MAX_PRODUCER, MAX_TAG

MAX_TEXT = 64 * 1024


@dataclass(frozen=True)
class Verdict:
    """Why a group gives up on an offset."""

    offset: int
    attempts: int
    error_class: str
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, offset: int, attempts: int) -> Verdict:
        if isinstance(error, Reject) and error.shows_cause and error.__cause__:
            error = error.__cause__
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        trace = storable("".join(traceback.format_exception(error)))
        return cls(offset, attempts, module + kind.__qualname__, cut(text_of(error)), cut(trace))


def cut(text: str) -> str:
    """Return the text, or its head and tail if it is longer than MAX_TEXT characters.

    A server may refuse a statement with a very long text.
    """
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]}\n…\n{text[-MAX_TEXT // 2 :]}"


class DeadMessageQuerySet(models.QuerySet["DeadMessage"]):
    def bury(self, topic_id: int, group_id: int, partition_id: int, verdict: Verdict) -> bool:
        """Write the dead letter with its own copy of the message; False if the message is gone."""
        statement = sql.COPY_TO_DEAD[connections[self.db].vendor]
        about = (
            verdict.attempts,
            verdict.error_class[:255],
            verdict.error,
            verdict.traceback,
        )
        parameters = (topic_id, group_id, *about, partition_id, verdict.offset)
        return execute(self.db, statement, parameters) == 1

    def reopen(self, verdict: Verdict) -> int:
        """Let redriven letters wait again: they have failed again, and have the only copy."""
        return self.update(
            redriven_at=None,
            died_at=UtcNow(),
            attempts=verdict.attempts,
            error_class=verdict.error_class[:255],
            error=verdict.error,
            traceback=verdict.traceback,
        )

    def newest_id(self) -> int:
        """Return the highest id, of whatever state; 0 if there is none."""
        return self.aggregate(newest=models.Max("pk"))["newest"] or 0

    def edited(self) -> DeadMessageQuerySet:
        """Return the dead letters whose copy is not that of the log any more."""
        return self.exclude(edited_at=None)

    def waiting(self) -> DeadMessageQuerySet:
        """Return the dead letters that nobody has redriven."""
        return self.filter(redriven_at=None)


class DeadMessage(WithBody):
    """A message that a group gave up on, with its own copy of the body, and the error."""

    topic = models.ForeignKey(
        "ems.Topic", models.PROTECT, related_name="+", db_constraint=False, verbose_name=_("topic")
    )
    group = LooseForeignKey(
        "ems.ConsumerGroup", models.PROTECT, related_name="dead_letters", verbose_name=_("group")
    )
    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    offset = models.BigIntegerField(_("offset"))
    message_id = models.BigIntegerField(_("message id"))
    body = models.BinaryField(_("body"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))
    key = NameField(_("key"), max_length=MAX_KEY, null=True, blank=True)
    tag = NameField(_("tag"), max_length=MAX_TAG, default="", blank=True)
    headers = models.JSONField(_("headers"), null=True, blank=True)
    producer = models.CharField(_("producer"), max_length=MAX_PRODUCER)
    sent_at = UtcDateTimeField(_("sent"))
    attempts = models.PositiveIntegerField(_("attempts"))
    error_class = NameField(_("error class"), max_length=255)
    error = models.TextField(_("error"))
    traceback = models.TextField(_("traceback"), default="", blank=True)
    died_at = UtcDateTimeField(_("died"), default=UtcNow)
    redriven_at = UtcDateTimeField(_("redriven"), null=True, blank=True)
    # What it was before, and who has edited it, is in LetterEdit.
    edited_at = UtcDateTimeField(_("edited"), null=True, blank=True)

    objects = DeadMessageQuerySet.as_manager()

    class Meta:
        db_table = "ems_dead_msg"
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        default_permissions = ("view",)
        permissions = (
            ("redrive_deadmessage", _("Can redrive dead letters")),
            ("discard_deadmessage", _("Can discard dead letters")),
            ("edit_deadmessage", _("Can edit dead letters and send them again")),
        )
        indexes = (
            models.Index(fields=["group", "partition", "offset"], name="ems_dead_place"),
            # For counts and lists of letters that nobody has redriven, newest first.
            models.Index(fields=["group", "redriven_at"], name="ems_dead_waiting"),
            models.Index(fields=["died_at"], name="ems_dead_died"),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition_id}:{self.offset}"

    def discard(self) -> bool:
        """Delete the dead letter for good; False if it was redriven or deleted meanwhile."""
        using = self._state.db or database()
        waiting = DeadMessage.objects.using(using).waiting().filter(pk=self.pk)
        deleted, _rows = retrying(waiting.delete, using)
        if deleted and self.edited_at:
            edits = LetterEdit.objects.using(using).filter(letter=self.pk)
            retrying(edits.delete, using)
        return bool(deleted)

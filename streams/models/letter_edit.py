"""Defines LetterEdit: what a dead letter was before somebody edited it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import LooseForeignKey, NameField, UtcDateTimeField, UtcNow
from streams.models.message import BodyType
from streams.models.with_body import WithBody
from streams.rules.names import MAX_KEY, MAX_TAG

MAX_WHO = 255


class LetterEdit(WithBody):
    """One edit of a dead letter: who, when, and the message as it was before.

    What the edit has made of it is in the next edit of the letter, or in the letter itself.
    """

    letter = LooseForeignKey("ems.DeadMessage", related_name="edits", verbose_name=_("dead letter"))
    group = LooseForeignKey("ems.ConsumerGroup", related_name="+", verbose_name=_("group"))
    who = models.CharField(_("edited by"), max_length=MAX_WHO)
    at = UtcDateTimeField(_("edited"), default=UtcNow)
    body = models.BinaryField(_("body before"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))
    key = NameField(_("key before"), max_length=MAX_KEY, null=True, blank=True)
    tag = NameField(_("tag before"), max_length=MAX_TAG, default="", blank=True)
    headers = models.JSONField(_("headers before"), null=True, blank=True)

    class Meta:
        db_table = "ems_dead_edit"
        verbose_name = _("edit of a dead letter")
        verbose_name_plural = _("edits of dead letters")
        default_permissions = ("view",)
        indexes = (models.Index(fields=["letter"], name="ems_edit_letter"),)

    def __str__(self) -> str:
        return f"{self.letter_id} #{self.pk}"

"""Defines Move: a topic that moves to another database, or came from one."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OwnManager
from streams.models.topic import Access
from streams.rules.names import MAX_NAME

MAX_ALIAS = 190


class Move(models.Model):
    """The move of a topic from the alias ``source`` to ``target``, under way or done.

    Both databases have a row with the same ``token``. That of the source is written when the topic
    is closed there. That of the target is written by the transaction that writes the topic there,
    so it tells whether the topic has moved. Without ``finished_at`` it says that this move was
    given up, and keeps a process that was frozen from going on with it.
    """

    name = TopicOrGroupField(_("topic"), max_length=MAX_NAME)
    token = models.CharField(_("token"), max_length=32)
    source = models.CharField(_("from"), max_length=MAX_ALIAS)
    target = models.CharField(_("to"), max_length=MAX_ALIAS)
    access = models.CharField(
        _("access"),
        max_length=10,
        choices=Access.choices,
        help_text=_("What the topic had before, and has again on the new database."),
    )
    who = models.CharField(_("begun by"), max_length=255)
    started_at = UtcDateTimeField(_("started at"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished at"), null=True)

    objects = OwnManager[Any]()

    class Meta:
        db_table = "ems_move"
        verbose_name = _("move of a topic")
        verbose_name_plural = _("moves of topics")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["token"], name="ems_move_token"),)

    def __str__(self) -> str:
        return f"{self.name}: {self.source} → {self.target}"

    @classmethod
    def last_of(cls, name: str, using: str) -> Move | None:
        """Return the last move of the topic from ``using`` or to it that was not given up."""
        given_up = models.Q(target=using, finished_at=None)
        rows = cls.objects.using(using).filter(name=name)
        found: Move | None = rows.exclude(given_up).order_by("-pk").first()
        return found

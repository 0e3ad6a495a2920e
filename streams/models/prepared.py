"""Defines PreparedRow: a message that is prepared, and what was decided about it."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from streams.models.fields import (
    HashField,
    NameField,
    TopicOrGroupField,
    UtcDateTimeField,
    UtcNow,
)
from streams.models.message import BodyType
from streams.models.namespaces import own
from streams.models.with_body import WithBody
from streams.rules.names import MAX_BIZ, MAX_CHECKER, MAX_KEY, MAX_NAME, MAX_PRODUCER, MAX_TAG

# In bytes of JSON, and in characters.
MAX_CONTEXT = 2000
MAX_ERROR = 1000


class PreparedState(models.TextChoices):
    PREPARED = "PREPARED", _("Prepared")
    COMMITTED = "COMMITTED", _("Committed, not sent yet")
    SENT = "SENT", _("Sent")
    UNSENT = "UNSENT", _("Committed, cannot be sent")
    ROLLED_BACK = "ROLLED_BACK", _("Rolled back")
    MANUAL = "MANUAL", _("A person must decide")


# In these, anybody who knows may still decide.
UNDECIDED = (PreparedState.PREPARED, PreparedState.MANUAL)
# To callers these are one: the decision is made, and the message is or will be sent.
COMMITTED = (PreparedState.COMMITTED, PreparedState.SENT, PreparedState.UNSENT)
# What is not done: neither sent nor rolled back.
UNFINISHED = (*UNDECIDED, PreparedState.COMMITTED, PreparedState.UNSENT)


class PreparedQuerySet(models.QuerySet["PreparedRow"]):
    def undecided(self) -> PreparedQuerySet:
        return self.filter(state__in=UNDECIDED)

    def waiting_for_people(self) -> PreparedQuerySet:
        """Return those that nothing but a person moves any more."""
        return self.filter(state__in=[PreparedState.MANUAL, PreparedState.UNSENT])

    def disputable(self) -> PreparedQuerySet:
        """Return those about which a dispute may be noted; not what was sent anyway."""
        return self.filter(state=PreparedState.ROLLED_BACK, disputed_at=None, message_id=None)

    def disputed(self) -> PreparedQuerySet:
        """Return those that a check has rolled back before their caller came to commit them."""
        return self.filter(state=PreparedState.ROLLED_BACK, disputed_at__isnull=False)

    def unfinished_of(self, topic: str) -> PreparedQuerySet:
        """Return those that may still be sent to this topic."""
        states = [*UNDECIDED, PreparedState.COMMITTED]
        return self.filter(topic=topic, state__in=states)


class PreparedOfNamespace(models.Manager["PreparedRow"]):
    """The rows of this namespace. ``_base_manager`` has all."""

    def get_queryset(self) -> models.QuerySet[PreparedRow]:
        return super().get_queryset().filter(own("biz"))


class PreparedRow(WithBody):
    """A prepared message under its business and its key, until it is purged.

    It is not a message yet: a commit writes one into ems_msg, so that its id and its offset come
    after everything that was sent before the commit (docs/decisions/0008-two-phase.md).
    """

    biz = TopicOrGroupField(_("business"), max_length=MAX_BIZ)
    biz_key = NameField(_("key of the business"), max_length=MAX_KEY)
    state = models.CharField(
        _("state"), max_length=11, choices=PreparedState.choices, default=PreparedState.PREPARED
    )
    topic = TopicOrGroupField(_("topic"), max_length=MAX_NAME)
    partition = models.PositiveIntegerField(_("partition"), null=True, blank=True)
    key = NameField(_("key"), max_length=MAX_KEY, null=True, blank=True)
    tag = NameField(_("tag"), max_length=MAX_TAG, default="", blank=True)
    headers = models.JSONField(_("headers"), null=True, blank=True)
    body = models.BinaryField(_("body"))
    body_type = models.CharField(_("body type"), max_length=5, choices=BodyType.choices)
    size = models.PositiveIntegerField(_("size in bytes"))
    digest = HashField(_("SHA-256 of the content"))
    producer = models.CharField(_("producer"), max_length=MAX_PRODUCER)
    checker = NameField(_("checker"), max_length=MAX_CHECKER)
    context = models.JSONField(_("context"), null=True, blank=True)
    checks = models.PositiveIntegerField(_("checks"), default=0)
    sends = models.PositiveIntegerField(_("tries"), default=0)
    next_at = UtcDateTimeField(
        _("next"), null=True, help_text=_("Empty: nothing is done without a person or a caller.")
    )
    checked_at = UtcDateTimeField(_("checked"), null=True)
    last_answer = models.CharField(_("last answer"), max_length=8, default="", blank=True)
    last_error = models.CharField(_("last error"), max_length=MAX_ERROR, default="", blank=True)
    decided_at = UtcDateTimeField(_("decided"), null=True)
    decided_by = models.CharField(_("decided by"), max_length=MAX_PRODUCER, default="", blank=True)
    disputed_at = UtcDateTimeField(
        _("disputed"),
        null=True,
        help_text=_("When its caller came to commit it, and a check had rolled it back."),
    )
    message_id = models.BigIntegerField(_("message"), null=True)
    sent_partition = models.PositiveIntegerField(_("sent to partition"), null=True)
    sent_at = UtcDateTimeField(_("sent"), null=True)
    created_at = UtcDateTimeField(_("prepared"), default=UtcNow)

    # Of what is claimed: whether its check is the last one.
    is_last: bool
    # Of what is locked: the time of the database's clock at the statement that has locked it.
    locked_at: datetime

    objects = PreparedOfNamespace.from_queryset(PreparedQuerySet)()

    class Meta:
        db_table = "ems_prepared"
        verbose_name = _("prepared message")
        verbose_name_plural = _("prepared messages")
        default_permissions = ("view",)
        permissions = (
            ("check_prepared", _("Can check prepared messages")),
            ("commit_prepared", _("Can commit prepared messages")),
            ("rollback_prepared", _("Can roll back prepared messages")),
        )
        constraints = (models.UniqueConstraint(fields=["biz", "biz_key"], name="ems_prepared_key"),)
        indexes = (
            models.Index(fields=["state", "checker", "next_at"], name="ems_prepared_due"),
            models.Index(fields=["topic", "state"], name="ems_prepared_topic"),
            models.Index(fields=["decided_at"], name="ems_prepared_decided"),
            models.Index(fields=["disputed_at"], name="ems_prepared_disputed"),
        )

    def __str__(self) -> str:
        return f"{self.biz}:{self.biz_key}"

    @property
    def is_undecided(self) -> bool:
        return self.state in UNDECIDED

    @property
    def is_disputed(self) -> bool:
        return self.state == PreparedState.ROLLED_BACK and self.disputed_at is not None


def of_key(biz: str, biz_key: str) -> Q:
    """Return the condition for the one row of a business and its key."""
    return Q(biz=biz, biz_key=biz_key)

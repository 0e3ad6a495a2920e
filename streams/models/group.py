"""Defines ConsumerGroup: the subscription of a group to a topic."""

from __future__ import annotations

from functools import partial
from typing import Literal

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams import signals
from streams.conf import MAX_BATCH
from streams.database.transactions import after_commit
from streams.models.fields import TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OwnManager
from streams.rules.names import MAX_NAME

# An override of this text lifts the rate that the code says.
UNLIMITED = "unlimited"
# Ends the rate of the code if it counts for each key by itself.
EACH_KEY = ", each key"


class Mode(models.TextChoices):
    CLUSTER = "cluster", _("Cluster: each message to one consumer")
    BROADCAST = "broadcast", _("Broadcast: each message to every consumer")


class Start(models.TextChoices):
    EARLIEST = "earliest", _("At the earliest message kept")
    LATEST = "latest", _("After the newest message")


class ConsumerGroupQuerySet(models.QuerySet["ConsumerGroup"]):
    def pause(self) -> int:
        """Claim nothing more, in all consumers within seconds; what runs is finished.

        Returns how many groups were not paused before; the signal group_paused is sent for them.
        """
        still = self.filter(paused=False)
        running = list(still.select_related("topic"))
        changed = still.update(paused=True, paused_at=UtcNow())
        for group in running:
            names = {"topic": group.topic.name, "group": group.name, "using": self.db}
            announce = partial(signals.group_paused.send_robust, ConsumerGroup, **names)
            after_commit(announce, self.db)
        return changed

    def resume(self) -> int:
        """Claim again; return how many groups were paused."""
        return self.filter(paused=True).update(paused=False, paused_at=None)


class ConsumerGroup(models.Model):
    """The subscription of a group to a topic."""

    topic = models.ForeignKey(
        "ems.Topic", models.PROTECT, related_name="groups", verbose_name=_("topic")
    )
    name = TopicOrGroupField(_("name"), max_length=MAX_NAME)
    mode = models.CharField(
        _("mode"), max_length=9, choices=Mode.choices, default=Mode.CLUSTER, editable=False
    )
    # One delivery of a partition after the other. What a failed message stops is `strict`.
    ordered = models.BooleanField(_("ordered"), default=False, editable=False)
    by_key = models.BooleanField(
        _("by key"),
        default=False,
        db_default=False,
        editable=False,
        help_text=_("Ordered by key: a failed message holds back only the messages of its key."),
    )
    # That of the decorator of the consumer that has started last, as tags.
    hold_dead = models.BooleanField(
        _("dead letters hold"),
        default=False,
        db_default=False,
        editable=False,
        help_text=_("A dead letter holds its key until it is redriven or discarded."),
    )
    # Those of the decorator of the consumer that has started last; empty: all messages. Consumers
    # go by their own: what was passed over is known to Spark only from here. So is the rate.
    tags = models.JSONField(_("tags"), null=True, blank=True, editable=False)
    rate_in_code = models.CharField(
        _("rate in the code"), max_length=48, blank=True, default="", db_default="", editable=False
    )
    start = models.CharField(
        _("start"),
        max_length=32,
        choices=Start.choices,
        default=Start.EARLIEST,
        help_text=_("Where it began, or where a new client of a broadcast group begins."),
    )
    max_retries = models.PositiveIntegerField(_("maximum retries"), null=True, blank=True)
    consume_timeout = models.PositiveIntegerField(
        _("consume timeout in seconds"), null=True, blank=True, validators=[MinValueValidator(1)]
    )
    batch = models.PositiveIntegerField(
        _("batch"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BATCH)],
    )
    retry_policy = models.CharField(
        _("retry policy"),
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text=_(
            "How long a failed message waits: “10s, 1m, 1h” (the last one repeats), or"
            " “exponential(first=10s, factor=2, at_most=1h, jitter=0.2)”."
        ),
    )
    rate = models.CharField(
        _("rate"),
        max_length=48,
        blank=True,
        default="",
        db_default="",
        help_text=_(
            "How many messages all its processes begin: “50/s”, “90/m”, “10/h” or “50/s, burst=10”."
            " “unlimited” lifts that of the code."
        ),
    )
    paused = models.BooleanField(_("paused"), default=False)
    paused_at = UtcDateTimeField(_("paused at"), null=True, blank=True, editable=False)
    created_at = UtcDateTimeField(_("created"), default=UtcNow, editable=False)

    objects = OwnManager.from_queryset(ConsumerGroupQuerySet)()

    class Meta:
        db_table = "ems_group"
        verbose_name = _("consumer group")
        verbose_name_plural = _("consumer groups")
        default_permissions = ("view", "change")  # consumers add a group, delete_group() deletes it
        permissions = (
            ("pause_consumergroup", _("Can pause consumer groups")),
            ("resume_consumergroup", _("Can resume consumer groups")),
            ("forget_consumergroup", _("Can forget consumer groups")),
            ("reset_consumergroup", _("Can reset consumer groups")),
            ("replay_consumergroup", _("Can replay messages to consumer groups")),
            ("rehearse_consumergroup", _("Can rehearse messages with the handlers of groups")),
            ("retry_consumergroup", _("Can retry blocked messages of consumer groups now")),
            ("skip_consumergroup", _("Can skip blocked messages of consumer groups")),
            ("give_up_consumergroup", _("Can give up running calls of consumer groups")),
        )
        constraints = (models.UniqueConstraint(fields=["topic", "name"], name="ems_group_name"),)

    def __str__(self) -> str:
        return f"{self.name} on {self.topic}"

    @property
    def order(self) -> bool | Literal["key"]:
        """Return ``ordered`` as @consumer has it."""
        return "key" if self.by_key else self.ordered

    @property
    def strict(self) -> bool:
        """Tell whether every failed message blocks its partition.

        In a group by key only one does that cannot be read, or comes when too many are parked.
        """
        return self.ordered and not self.by_key

    @property
    def rate_in_force(self) -> str:
        """Return how many of its messages begin in a time, an empty text where nothing says it."""
        return "" if self.rate == UNLIMITED else self.rate or self.rate_in_code

    @property
    def has_rate_of_keys(self) -> bool:
        """Tell whether its rate counts for each key by itself, which only its consumers know."""
        return self.rate_in_code.endswith(EACH_KEY) and self.rate != UNLIMITED

    @property
    def kind(self) -> str:
        """Return ``broadcast``, ``ordered``, ``by_key`` or ``cluster``."""
        return "by_key" if self.by_key else "ordered" if self.ordered else self.mode

    @property
    def kind_text(self) -> str:
        """Return the same as people read it."""
        words = {
            "broadcast": gettext("broadcast"),
            "ordered": gettext("ordered"),
            "by_key": gettext("ordered by key"),
        }
        return words.get(self.kind, gettext("cluster"))

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.conf import MAX_BATCH
from streams.database.retrying import retrying
from streams.errors import GroupActive
from streams.models.fields import NameField, UtcDateTimeField, UtcNow
from streams.names import MAX_NAME
from streams.transactions import own_transaction

DELETE_BATCH = 1000


class Mode(models.TextChoices):
    CLUSTER = "cluster", _("Cluster: each message to one consumer")
    BROADCAST = "broadcast", _("Broadcast: each message to every consumer")


class Start(models.TextChoices):
    EARLIEST = "earliest", _("At the earliest message kept")
    LATEST = "latest", _("After the newest message")


class ConsumerGroupQuerySet(models.QuerySet["ConsumerGroup"]):
    def pause(self) -> int:
        """Claim nothing more, in all consumers within seconds; what runs is finished."""
        return self.update(paused=True)

    def resume(self) -> int:
        return self.update(paused=False)


class ConsumerGroup(models.Model):
    """The subscription of a group to a topic."""

    topic = models.ForeignKey(
        "ems.Topic", models.PROTECT, related_name="groups", verbose_name=_("topic")
    )
    name = NameField(_("name"), max_length=MAX_NAME)
    mode = models.CharField(
        _("mode"), max_length=9, choices=Mode.choices, default=Mode.CLUSTER, editable=False
    )
    ordered = models.BooleanField(_("ordered"), default=False, editable=False)
    start = models.CharField(
        _("start"), max_length=8, choices=Start.choices, default=Start.EARLIEST
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
    paused = models.BooleanField(_("paused"), default=False)
    created_at = UtcDateTimeField(_("created at"), default=UtcNow, editable=False)

    objects = ConsumerGroupQuerySet.as_manager()

    class Meta:
        db_table = "ems_group"
        verbose_name = _("consumer group")
        verbose_name_plural = _("consumer groups")
        default_permissions = ("view", "change")  # consumers add it, forget() deletes it
        permissions = (
            ("pause_consumergroup", _("Can pause consumer groups")),
            ("resume_consumergroup", _("Can resume consumer groups")),
            ("forget_consumergroup", _("Can forget consumer groups")),
            ("reset_consumergroup", _("Can reset consumer groups")),
            ("replay_consumergroup", _("Can replay messages to consumer groups")),
        )
        constraints = (models.UniqueConstraint(fields=["topic", "name"], name="ems_group_name"),)

    def __str__(self) -> str:
        return f"{self.name} on {self.topic}"

    @property
    def kind(self) -> str:
        """``broadcast``, ``ordered`` or ``cluster``."""
        return "ordered" if self.ordered else self.mode

    def contents(self) -> dict[str, int]:
        """How many rows of each kind the group has: what forgetting it would delete."""
        return {
            str(rows.model._meta.verbose_name_plural): rows.count() for rows in self._belongings()
        }

    def forget(self, say: Callable[[int], None] = lambda rows: None) -> None:
        """Delete the group with its position, retries, dead letters and log.

        In batches, and at last, in one transaction, the position with the group: a run that is
        broken off can be repeated, and leaves a group that reads on from where it was. ``say`` is
        told the number of rows so far. Raises GroupActive while it has a live consumer.
        """
        self._refuse_while_live()
        deleted = 0
        ended = self.deliveries.using(self._state.db).filter(group=self.pk).ended()
        for rows in (ended, *self._of_group(self.dead_letters, self.retries)):
            # In the order of the group's index: by key, each batch would step over other groups.
            while batch := list(rows.order_by().values_list("pk", flat=True)[:DELETE_BATCH]):
                rows.filter(pk__in=batch).delete()
                deleted += len(batch)
                say(deleted)
        retrying(self._end, str(self._state.db))

    def _end(self) -> None:
        from streams.models.topic import Topic

        with own_transaction(str(self._state.db)):
            # Under the topic's lock it gets no cursor, and without its cursors it claims nothing.
            list(Topic.objects.using(self._state.db).select_for_update().filter(pk=self.topic_id))
            cursors, *others = self._belongings()
            cursors.delete()
            self._refuse_while_live()
            for rows in others:
                rows.delete()
            type(self)._default_manager.using(self._state.db).filter(pk=self.pk).delete()

    def _refuse_while_live(self) -> None:
        if self.clients.using(self._state.db).filter(group=self.pk).live().exists():
            raise GroupActive(_("The group %s has live consumers: stop them first.") % self.name)

    def _belongings(self) -> list[models.QuerySet[Any]]:
        return self._of_group(
            self.cursors, self.retries, self.dead_letters, self.deliveries, self.clients
        )

    def _of_group(self, *related: Any) -> list[models.QuerySet[Any]]:
        # A router must not send any of this to another database.
        return [manager.using(self._state.db).filter(group=self.pk) for manager in related]

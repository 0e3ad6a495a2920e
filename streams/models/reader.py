"""Defines Reader: a streaming query of Spark that reads a topic, and how far its checkpoint is."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.database.retrying import retrying
from streams.models.fields import NameField, UtcDateTimeField, UtcNow
from streams.models.namespaces import own
from streams.rules.names import MAX_NAME

MAX_CHECKPOINT = 16


class ReaderManager(models.Manager["Reader"]):
    """The readers of topics of this namespace."""

    def get_queryset(self) -> models.QuerySet[Reader]:
        return super().get_queryset().filter(own("topic__name"))


class Reader(models.Model):
    """A streaming query and one of its topics. sparkjobs/source/known.py writes it.

    ``positions`` has for each partition, by its id as a text, the next offset to be read; a
    partition that is not in it was added since, and is unread. They are never ahead of the
    checkpoint: what is below them is not read again.
    """

    checkpoint = NameField(
        _("checkpoint"),
        max_length=MAX_CHECKPOINT,
        help_text=_("The source has made it, and keeps it in the checkpoint of the query."),
    )
    topic = models.ForeignKey(
        "ems.Topic",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
        verbose_name=_("topic"),
    )
    name = models.CharField(_("name"), max_length=MAX_NAME, default="", blank=True)
    protect = models.BooleanField(
        _("protect"), default=False, help_text=_("What it has not read is not purged.")
    )
    positions = models.JSONField(_("positions"), default=dict)
    total = models.BigIntegerField(_("total"), default=0, help_text=_("The sum of the positions."))
    first_seen_at = UtcDateTimeField(_("first seen"), default=UtcNow)
    seen_at = UtcDateTimeField(_("last seen"), default=UtcNow)
    # A minute or more before seen_at: the rate is computed from both.
    before_total = models.BigIntegerField(_("total before"), default=0, editable=False)
    before_at = UtcDateTimeField(_("seen before"), default=UtcNow, editable=False)

    objects = ReaderManager()

    class Meta:
        db_table = "ems_reader"
        verbose_name = _("stream of Spark")
        verbose_name_plural = _("streams of Spark")
        default_permissions = ("view",)
        permissions = (("forget_reader", "Can forget streams of Spark"),)
        constraints = (
            models.UniqueConstraint(fields=["topic", "checkpoint"], name="ems_reader_topic"),
        )

    def __str__(self) -> str:
        return gettext("%(reader)s on %(topic)s") % {"reader": self.label, "topic": self.topic}

    @property
    def label(self) -> str:
        """Return its name, or its checkpoint; several queries may have the same name."""
        return f"{self.name} ({self.checkpoint})" if self.name else str(self.checkpoint)

    @property
    def rate(self) -> float | None:
        """Return the messages a second of the last minute or so in which it was seen."""
        seconds = (self.seen_at - self.before_at).total_seconds()
        return max(0, self.total - self.before_total) / seconds if seconds > 0 else None

    def position(self, partition: int) -> int:
        return int(self.positions.get(str(partition), 0))

    def forget(self) -> bool:
        """Delete the row. Return False if the stream was seen since."""
        using = self._state.db or "default"
        rows = Reader._base_manager.using(using).filter(pk=self.pk)
        retrying(rows.filter(seen_at__lte=self.seen_at).delete, using)
        return not rows.exists()

"""Defines Cursor: how far a group is in a partition."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from streams.models.delivery import Kind
from streams.models.fields import UtcDateTimeField, UtcNow

# Of a replay: it has given out all, and, of an ordered group, nothing of it is in hand.
ENDED = Q(next_offset__gte=F("stop_offset"), open_delivery=None)


class CursorQuerySet(models.QuerySet["Cursor"]):
    def behind(self) -> CursorQuerySet:
        """Return the cursors that have not reached the end of their partition."""
        return self.filter(next_offset__lt=F("partition__next_offset"))

    def ended(self) -> CursorQuerySet:
        """Return the replays that have given out all, and, in ordered groups, hold no delivery."""
        return self.filter(ENDED, replay__gt=0)

    def unended(self) -> CursorQuerySet:
        """Return the replays that have not ended."""
        return self.filter(~ENDED, replay__gt=0)


class Cursor(models.Model):
    """Holds how far a group is in a partition: next_offset is the next one to claim.

    A cursor moves by a claim, a reset, a forced purge or (ordered groups) a failure; every offset
    that it passes is covered by a delivery.
    """

    group = models.ForeignKey(
        "ems.ConsumerGroup", models.CASCADE, related_name="cursors", verbose_name=_("group")
    )
    partition = models.ForeignKey(
        "ems.Partition",
        models.PROTECT,
        related_name="cursors",
        db_constraint=False,
        verbose_name=_("partition"),
    )
    replay = models.PositiveIntegerField(
        _("replay"), default=0, help_text=_("0 is the group's own cursor; a replay has a number.")
    )
    next_offset = models.BigIntegerField(_("next offset"), default=0)
    start_offset = models.BigIntegerField(_("start offset"), default=0)
    previous_offset = models.BigIntegerField(
        _("previous offset"),
        null=True,
        blank=True,
        help_text=_("Where it was before the last reset; of a replay: where it was cancelled."),
    )
    # Identifies the last reset: what it has revoked has this time as finished_at.
    reset_at = UtcDateTimeField(_("reset at"), null=True, blank=True)
    stop_offset = models.BigIntegerField(_("stop offset"), null=True, blank=True)
    log_offset = models.BigIntegerField(
        _("log kept from"),
        default=0,
        db_default=0,
        help_text=_("Deliveries below it may have been purged."),
    )
    # Only ordered groups use these fields.
    open_delivery = models.BigIntegerField(_("open delivery"), null=True, blank=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    blocked_until = UtcDateTimeField(_("blocked until"), null=True, blank=True)
    alone = models.BooleanField(
        _("alone"),
        default=False,
        db_default=False,
        help_text=_(
            "Two processes in a row died with the next message: it runs alone in its group."
        ),
    )

    objects = CursorQuerySet.as_manager()

    class Meta:
        db_table = "ems_cursor"
        verbose_name = _("cursor")
        verbose_name_plural = _("cursors")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["group", "partition", "replay"], name="ems_cursor_place"
            ),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition_id}@{self.next_offset}"

    @property
    def kind(self) -> Kind:
        """Return the kind of the deliveries that it gives out."""
        return Kind.REPLAY if self.replay else Kind.NEW

    def limited(self, offset: int) -> int:
        """Return ``offset``, or the end of a replay if that is lower."""
        return offset if self.stop_offset is None else min(offset, self.stop_offset)

    def return_to(
        self,
        offset: int,
        attempt: int = 1,
        delay: timedelta = timedelta(0),
        *,
        alone: bool = False,
    ) -> None:
        """Let the next delivery begin at ``offset`` after ``delay``, once one has ended.

        The caller has locked this row.
        """
        Cursor.objects.using(self._state.db).filter(pk=self.pk).update(
            next_offset=offset,
            open_delivery=None,
            attempt=attempt,
            blocked_until=UtcNow(delay) if delay else None,
            alone=alone,
        )

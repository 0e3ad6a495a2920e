"""Defines Cursor: how far a group is in a partition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from streams.models.delivery import Kind
from streams.models.fields import UtcDateTimeField, UtcNow
from streams.models.retry import MAX_ERROR

# Its next message is there, and has failed, or could not be read. While a call runs that has not
# failed yet, other messages of its batch may be done already. Cursor.is_blocked says the same.
BLOCKED = Q(group__ordered=True) & (
    Q(attempt__gt=1, open_delivery__isnull=False)
    | (Q(attempt__gt=1) | Q(blocked_at__isnull=False))
    & Q(open_delivery=None, next_offset__lt=F("partition__next_offset"))
)
# Of a replay: it has given out all, and, of an ordered group, nothing of it is in hand.
ENDED = Q(next_offset__gte=F("stop_offset"), open_delivery=None)


class CursorQuerySet(models.QuerySet["Cursor"]):
    def behind(self) -> CursorQuerySet:
        """Return the cursors that have not reached the end of their partition."""
        return self.filter(next_offset__lt=F("partition__next_offset"))

    def blocked(self) -> CursorQuerySet:
        """Return the groups' own cursors whose next message has failed: what follows it waits."""
        return self.filter(BLOCKED, replay=0)

    def ended(self) -> CursorQuerySet:
        """Return the replays that have given out all, and, in ordered groups, hold no delivery."""
        return self.filter(ENDED, replay__gt=0)

    def unended(self) -> CursorQuerySet:
        """Return the replays that have not ended."""
        return self.filter(~ENDED, replay__gt=0)


class Cursor(models.Model):
    """How far a group is in a partition: next_offset is the next one to claim.

    A cursor moves by a claim, a reset, a forced purge or (ordered groups) a failure or a skip;
    every offset that it passes is covered by a delivery.
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
    reset_at = UtcDateTimeField(_("reset"), null=True, blank=True)
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
    blocked_at = UtcDateTimeField(
        _("blocked since"),
        null=True,
        blank=True,
        help_text=_("When the next message failed for the first time."),
    )
    # Set, and never taken back, by whoever holds the first key; a claim that finds none clears it.
    has_held_keys = models.BooleanField(
        _("has held keys"),
        default=False,
        db_default=False,
        help_text=_("A key of the partition may be held: only groups ordered by key use it."),
    )
    last_error = models.CharField(
        _("last error"), max_length=MAX_ERROR, default="", db_default="", blank=True
    )
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
    def is_blocked(self) -> bool:
        """Tell whether its next message, which is in the log, has failed: see BLOCKED."""
        if not self.group.ordered:
            return False
        if self.open_delivery is not None:
            return self.attempt > 1
        has_failed = self.attempt > 1 or self.blocked_at is not None
        return has_failed and self.next_offset < self.partition.next_offset

    @property
    def next_message(self) -> int:
        """Return the offset of the message that blocks this cursor, also while a call of it runs.

        A message that has failed is claimed alone.
        """
        return self.next_offset - (self.open_delivery is not None)

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
        error: str = "",
    ) -> None:
        """Let the next delivery begin at ``offset`` after ``delay``, once one has ended.

        With ``error``, the message there has failed. The caller has locked this row.
        """
        failure: dict[str, Any] = {}  # what was given back with its attempt unspent keeps its own
        if error:
            failure = {"blocked_at": Coalesce("blocked_at", UtcNow()), "last_error": error}
        elif attempt == 1:
            failure = {"blocked_at": None, "last_error": ""}
        Cursor.objects.using(self._state.db).filter(pk=self.pk).update(
            next_offset=offset,
            open_delivery=None,
            attempt=attempt,
            blocked_until=UtcNow(delay) if delay else None,
            alone=alone,
            **failure,
        )

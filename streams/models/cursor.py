from __future__ import annotations

from django.db import models
from django.db.models import F
from django.utils.translation import gettext_lazy as _

from streams.models.fields import UtcDateTimeField


class CursorQuerySet(models.QuerySet["Cursor"]):
    def behind(self) -> CursorQuerySet:
        """The cursors that have something to claim now."""
        return self.filter(next_offset__lt=F("partition__next_offset"))


class Cursor(models.Model):
    """How far a group is in a partition: next_offset is the next to be claimed.

    A cursor moves by claim, by reset or (ordered groups) by failure; every offset that it passes
    is covered by a delivery.
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
    previous_offset = models.BigIntegerField(_("previous offset"), null=True, blank=True)
    stop_offset = models.BigIntegerField(_("stop offset"), null=True, blank=True)
    # Ordered groups only.
    open_delivery = models.BigIntegerField(_("open delivery"), null=True, blank=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    blocked_until = UtcDateTimeField(_("blocked until"), null=True, blank=True)
    alone = models.BooleanField(
        _("alone"),
        default=False,
        db_default=False,
        help_text=_("The process that handled the next message died: it runs by itself."),
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

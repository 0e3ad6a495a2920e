"""Defines RetryMessage: one offset that one group must see again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections, models
from django.utils.translation import gettext_lazy as _

from streams.database.sql import settle as sql
from streams.database.sql.dialect import execute, later
from streams.models.fields import LooseForeignKey, UtcDateTimeField, UtcNow

MAX_ERROR = 1000
CHUNK = 500


@dataclass(frozen=True)
class Again:
    """An offset to be seen again: its next ``attempt``, which begins after ``delay``."""

    offset: int
    attempt: int
    delay: timedelta = timedelta(0)
    error: str = ""
    alone: bool = False
    key_hash: int | None = None  # of a group by key: it waits in the order of this key
    parked: bool = False


class RetryMessageQuerySet(models.QuerySet["RetryMessage"]):
    def due(self) -> RetryMessageQuerySet:
        """Return the waiting rows that are due."""
        return self.filter(delivery=None, due_at__lte=UtcNow())

    def schedule(self, group_id: int, partition_id: int, rows: Sequence[Again]) -> None:
        """Add ``rows``; an existing one keeps the higher attempt and the earlier due_at.

        What is parked, or was before, stays so: only who has locked its key lets it go.
        """
        vendor = connections[self.db].vendor
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            parameters = [
                value
                for row in chunk
                for value in (
                    group_id,
                    partition_id,
                    row.offset,
                    row.attempt,
                    None if row.parked else later(vendor, row.delay),
                    row.alone,
                    row.error[:MAX_ERROR],
                    row.key_hash,
                )
            ]
            execute(self.db, sql.upsert_retries(vendor, len(chunk)), parameters)


class RetryMessage(models.Model):
    """One offset that one group must see again.

    It waits while ``delivery`` is empty. Otherwise that delivery holds it.
    """

    group = LooseForeignKey("ems.ConsumerGroup", related_name="retries", verbose_name=_("group"))
    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    offset = models.BigIntegerField(_("offset"))
    attempt = models.PositiveIntegerField(
        _("attempt"), default=1, help_text=_("The attempt that comes next, from 1.")
    )
    due_at = UtcDateTimeField(
        _("due"), null=True, blank=True, help_text=_("Empty: parked, until its key is free.")
    )
    # Of a group by key. A message without one, and a redriven one, waits for no other.
    key_hash = models.BigIntegerField(_("hash of the key"), null=True, blank=True, editable=False)
    delivery = LooseForeignKey("ems.Delivery", null=True, blank=True, verbose_name=_("delivery"))
    again = models.BooleanField(
        _("again"), default=False, help_text=_("Asked for once more while a delivery held it.")
    )
    alone = models.BooleanField(
        _("alone"),
        default=False,
        help_text=_("Two processes in a row died with it: it runs alone in its group."),
    )
    dead_letter = LooseForeignKey(
        "ems.DeadMessage", null=True, blank=True, verbose_name=_("dead letter that it came from")
    )
    last_error = models.CharField(_("last error"), max_length=MAX_ERROR, default="", blank=True)

    objects = RetryMessageQuerySet.as_manager()

    class Meta:
        db_table = "ems_retry_msg"
        verbose_name = _("retry")
        verbose_name_plural = _("retries")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["group", "partition", "offset"], name="ems_retry_place"
            ),
        )
        indexes = (
            models.Index(fields=["group", "delivery", "due_at"], name="ems_retry_due"),
            models.Index(fields=["group", "partition", "key_hash", "offset"], name="ems_retry_key"),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition_id}:{self.offset}"

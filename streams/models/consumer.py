"""Defines Consumer: one process in one group, with its lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import models
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from streams.conf import LEASE_SECONDS
from streams.models.fields import UtcDateTimeField, UtcNow

LEASE = timedelta(seconds=LEASE_SECONDS)
MAX_REASON = 255


class ConsumerQuerySet(models.QuerySet["Consumer"]):
    def live(self) -> ConsumerQuerySet:
        return self.filter(lease_until__gte=UtcNow())

    def renew(self, client_id: str, groups: Sequence[int]) -> bool:
        """Extend the leases of the client; False if one had expired, and it needs a new id."""
        mine = self.filter(client_id=client_id, group_id__in=groups)
        return mine.live().update(lease_until=UtcNow(LEASE)) == len(groups)

    def away(self) -> ConsumerQuerySet:
        """Return the live clients whose handlers lack what they need."""
        return self.live().exclude(away_since=None)

    def note_away(self, reason: str) -> None:
        """Write that what the handlers need is away; the instant is that of the first time."""
        since = Coalesce("away_since", UtcNow())
        self.update(away_since=since, away_reason=reason[:MAX_REASON])

    def note_back(self) -> None:
        """Write that it is back."""
        self.update(away_since=None, away_reason="")


class Consumer(models.Model):
    """The lease of one consumer process in one group. Without a lease it is dead."""

    client_id = models.CharField(_("client id"), max_length=190)
    group = models.ForeignKey(
        "ems.ConsumerGroup", models.CASCADE, related_name="clients", verbose_name=_("group")
    )
    lease_until = UtcDateTimeField(_("lease until"))
    started_at = UtcDateTimeField(_("started"), default=UtcNow)
    # The server, and its start, on which the process has taken its lock; empty if on none.
    locked_on = models.CharField(max_length=128, default="", db_default="", editable=False)

    # What its handlers need, such as the broker of a relay.
    away_since = UtcDateTimeField(_("broker away since"), null=True, blank=True, editable=False)
    away_reason = models.CharField(
        _("why it is away"),
        max_length=MAX_REASON,
        default="",
        db_default="",
        blank=True,
        editable=False,
    )

    objects = ConsumerQuerySet.as_manager()

    class Meta:
        db_table = "ems_client"
        verbose_name = _("consumer")
        verbose_name_plural = _("consumers")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["client_id", "group"], name="ems_client_group"),
        )
        indexes = (models.Index(fields=["lease_until"], name="ems_client_lease"),)

    def __str__(self) -> str:
        return self.client_id

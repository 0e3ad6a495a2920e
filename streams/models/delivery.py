"""Defines Delivery: one claim of a range of offsets, with its lease."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from streams.conf import MAX_BATCH, database
from streams.database.retrying import retrying
from streams.database.sql.dialect import set_bits
from streams.database.transactions import own_transaction
from streams.errors import LeaseLost
from streams.models.consumer import Consumer
from streams.models.fields import LooseForeignKey, UtcDateTimeField, UtcNow
from streams.models.retry import MAX_ERROR

# In characters: what a delivery of several offsets keeps of each different error, and of all. A
# claim of a thousand messages may fail with as many texts.
MAX_NOTED = 300
MAX_ERRORS = 16_000


class Kind(models.TextChoices):
    NEW = "new", _("New")
    RETRY = "retry", _("Retry")
    REPLAY = "replay", _("Replay")


class State(models.TextChoices):
    START = "START", _("Started")
    DONE = "DONE", _("Done")
    RETRY = "RETRY", _("Failed, to be retried")
    RELEASED = "RELEASED", _("Released")
    SKIPPED = "SKIPPED", _("Skipped")


class _SettledAbove(models.Func):
    """How many messages of a delivery are settled above its progress, in any order."""

    output_field = models.BigIntegerField()

    def __init__(self) -> None:
        super().__init__("settled", "progress", "first_offset")

    def as_sql(  # type: ignore[override]
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        # Django's own shift is a division of floating-point numbers on MySQL.
        settled, progress, first = (compiler.compile(one)[0] for one in self.source_expressions)
        return set_bits(connection.vendor, f"{settled} >> ({progress} - {first})"), ()


# How many messages of a delivery are not settled: Delivery.unsettled, in a query.
UNSETTLED = F("last_offset") + 1 - F("progress") - _SettledAbove()


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def open(self) -> DeliveryQuerySet:
        return self.filter(state=State.START)

    def held(self) -> DeliveryQuerySet:
        """Return the open deliveries that a client holds."""
        return self.open().exclude(token="")

    def given_back(self) -> DeliveryQuerySet:
        """Return the ranges that were given back before a call began: the next claim takes them.

        They are open, so a purge, a reset and the audit treat them as claimed. Nobody holds them.
        """
        return self.open().filter(token="")

    def ended(self) -> DeliveryQuerySet:
        return self.exclude(state=State.START)

    def covering(self, group_id: int, partition_id: int, offset: int) -> DeliveryQuerySet:
        """Return the claims of ``offset``: a short range of ems_log_place, as claims are short."""
        return self.filter(
            group=group_id,
            partition=partition_id,
            first_offset__gt=offset - MAX_BATCH,
            first_offset__lte=offset,
            last_offset__gte=offset,
        )

    def expired(self) -> DeliveryQuerySet:
        """Return open deliveries past their deadline, or whose client has no lease any more."""
        live = Consumer.objects.live().filter(
            client_id=models.OuterRef("client_id"), group=models.OuterRef("group")
        )
        return self.held().filter(Q(deadline__lt=UtcNow()) | ~models.Exists(live))


class Delivery(models.Model):
    """One claim of the offsets first_offset … last_offset of a partition by one client.

    Only the client that has ``token`` may move ``progress`` and end the delivery, while its state
    is START. ``progress`` is the first offset that is not settled yet. An open one without a token
    is a range that was given back. An open one has ``started_at`` only if its one call has begun.
    Of one that is settled in any order, ``settled`` has bit n if first_offset + n is settled.
    """

    group = LooseForeignKey("ems.ConsumerGroup", related_name="deliveries", verbose_name=_("group"))
    partition = LooseForeignKey("ems.Partition", verbose_name=_("partition"))
    first_offset = models.BigIntegerField(_("first offset"))
    last_offset = models.BigIntegerField(_("last offset"))
    progress = models.BigIntegerField(_("progress"))
    kind = models.CharField(_("kind"), max_length=6, choices=Kind.choices, default=Kind.NEW)
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    client_id = models.CharField(_("client id"), max_length=190)
    thread = models.CharField(_("thread"), max_length=64)
    token = models.CharField(_("token"), max_length=32)
    state = models.CharField(_("state"), max_length=8, choices=State.choices, default=State.START)
    claimed_at = UtcDateTimeField(_("claimed"), default=UtcNow)
    started_at = UtcDateTimeField(_("started"), null=True, blank=True)
    deadline = UtcDateTimeField(_("deadline"))
    finished_at = UtcDateTimeField(_("finished"), null=True, blank=True)
    failed = models.PositiveIntegerField(_("failed"), default=0)
    dead = models.PositiveIntegerField(
        _("dead"), default=0, help_text=_("Of the failed, those that became dead letters.")
    )
    missing = models.PositiveIntegerField(_("missing"), default=0)
    passed = models.PositiveIntegerField(
        _("passed over"),
        default=0,
        db_default=0,
        help_text=_("Messages without a tag that the group wants."),
    )
    error = models.CharField(_("error"), max_length=MAX_ERROR, default="", blank=True)
    # Of a group by key: what waits for its key, as JSON: offsets by the hash of the key. Those
    # of "" were absent when the keys were read.
    parked = models.TextField(_("parked"), null=True, blank=True, editable=False)  # noqa: DJ001 - MySQL gives TEXT no default
    # Of a claim of several offsets: the errors, as JSON, each with the offsets that failed with it.
    errors = models.TextField(_("errors"), null=True, blank=True, editable=False)  # noqa: DJ001 - MySQL gives TEXT no default

    settled = models.PositiveBigIntegerField(null=True, blank=True, editable=False)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        db_table = "ems_topic_group_log"
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=["group", "partition", "first_offset"], name="ems_log_place"),
            models.Index(fields=["state", "deadline"], name="ems_log_open"),
        )

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition_id}:{self.first_offset}–{self.last_offset}"

    # Set on a claim whose messages run alone, since a process died with them. Not a column.
    alone = False

    # Set on a claim whose keys run side by side, in lanes. Not a column.
    in_lanes = False

    # Set once a message of the claim comes again with its attempt unspent. Not a column.
    postponed = False

    @property
    def offsets(self) -> range:
        return range(self.first_offset, self.last_offset + 1)

    @property
    def using(self) -> str:
        return self._state.db or database()

    def is_settled(self, offset: int) -> bool:
        """Tell whether the outcome of ``offset``, one of the delivery's, is on record."""
        if offset < self.progress:
            return True
        return bool((self.settled or 0) >> (offset - self.first_offset) & 1)

    @property
    def unsettled(self) -> int:
        """The number of its messages whose outcome is not on record."""
        above = (self.settled or 0) >> (self.progress - self.first_offset)
        return self.last_offset + 1 - self.progress - above.bit_count()

    def counts_starts(self, *, is_last: bool) -> bool:
        """Tell whether the attempt is spent by a start only, which is written before the call.

        ``is_last``: a death in it leaves no other attempt. Any other delivery has spent one when
        its client dies: the message may be why (see expire).
        """
        return is_last or self.kind == Kind.RETRY or self.attempt > 1

    def noted(self, errors: Mapping[int, str]) -> str | None:
        """Return ``self.errors`` with these errors added, by their offsets.

        A delivery of one offset has its error in ``error``. What does not fit in is left out.
        """
        if self.first_offset == self.last_offset:
            return None
        found = self._errors()
        for offset, error in errors.items():
            found.setdefault(error[:MAX_NOTED], []).append(offset)
        text = json.dumps(found, ensure_ascii=False)
        return text if len(text) <= MAX_ERRORS else self.errors

    def failures(self) -> dict[int, str]:
        """Return the error of each offset that failed; some may have been left out."""
        if self.first_offset == self.last_offset:
            return {self.first_offset: self.error} if self.failed else {}
        return {offset: error for error, offsets in self._errors().items() for offset in offsets}

    def _errors(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = json.loads(self.errors or "{}")
        return found

    @cached_property
    def parks(self) -> Mapping[int, int]:
        """Return the offsets that wait for their key and are not handed over, with its hash."""
        found = json.loads(self.parked or "{}")
        return {at: int(key) for key, offsets in found.items() if key for at in offsets}

    @cached_property
    def unseen(self) -> frozenset[int]:
        """Return the offsets whose key was not known at the claim: they count as not read."""
        return frozenset(json.loads(self.parked or "{}").get("", ()))

    def start(self, timeout: timedelta) -> None:
        """Record that the handler is about to run, for at most ``timeout``; raises LeaseLost."""
        changes = {"started_at": UtcNow(), "deadline": UtcNow(timeout)}
        if not retrying(lambda: self.held().update(**changes), self.using):
            raise LeaseLost

    def extend(self, time_left: timedelta) -> bool:
        """Set the deadline to ``time_left`` from now; return False if the lease is lost."""
        return bool(self.held().update(deadline=UtcNow(time_left)))

    def extend_unless_locked(self, time_left: timedelta) -> bool:
        """Do the same, but leave the deadline as it is while another transaction locks the row."""
        with own_transaction(self.using):
            if self.held().select_for_update(skip_locked=True).values_list("pk").first():
                return self.extend(time_left)
        return self.held().exists()

    def held(self) -> DeliveryQuerySet:
        # A client that lost the lease must not move or finish the delivery: another consumer may be
        # handling it. So every such write names the token.
        return Delivery.objects.using(self.using).open().filter(pk=self.pk, token=self.token)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections, models
from django.db.models import Case, F, Q, When
from django.utils.translation import gettext_lazy as _

from streams import retries, sql
from streams.conf import MAX_BATCH, database, settings
from streams.database.retrying import retrying
from streams.errors import LeaseLost, Reject, Retry, describe
from streams.models.consumer import LEASE, Consumer
from streams.models.cursor import Cursor
from streams.models.dead import BodyUnread, DeadMessage, ProcessDied, Verdict
from streams.models.fields import UtcDateTimeField, UtcNow
from streams.models.retry import MAX_ERROR, Again, RetryMessage, RetryMessageQuerySet
from streams.transactions import own_transaction


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


@dataclass(frozen=True)
class Failure:
    """One offset whose handler raised."""

    offset: int
    error: BaseException

    def is_final(self, attempt: int, max_retries: int) -> bool:
        if isinstance(self.error, BodyUnread):
            return False  # no attempt was made
        return isinstance(self.error, Reject) or retries.exhausted(attempt, max_retries)

    def again(self, attempt: int) -> Again:
        if isinstance(self.error, BodyUnread):
            soon = timedelta(seconds=settings().RETRY_DELAYS[0])
            return Again(self.offset, attempt, soon, describe(self.error))
        delay = self.error.delay if isinstance(self.error, Retry) else None
        if delay is None:
            delay = retries.delay_after(attempt, settings().RETRY_DELAYS)
        return Again(self.offset, attempt + 1, delay, describe(self.error))


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def open(self) -> DeliveryQuerySet:
        return self.filter(state=State.START)

    def ended(self) -> DeliveryQuerySet:
        return self.exclude(state=State.START)

    def covering(self, group_id: int, partition_id: int, offset: int) -> DeliveryQuerySet:
        """The claims of an offset: one short range of ems_log_place, since claims are bounded."""
        return self.filter(
            group=group_id,
            partition=partition_id,
            first_offset__gt=offset - MAX_BATCH,
            first_offset__lte=offset,
            last_offset__gte=offset,
        )

    def expired(self) -> DeliveryQuerySet:
        """Open deliveries past their deadline, or of a client that has no lease any more."""
        live = Consumer.objects.live().filter(
            client_id=models.OuterRef("client_id"), group=models.OuterRef("group")
        )
        return self.open().filter(Q(deadline__lt=UtcNow()) | ~models.Exists(live))


class Delivery(models.Model):
    """One claim of the offsets first_offset … last_offset of a partition by one client.

    It carries the lease: whoever holds ``token`` while the state is START may move ``progress``
    and end it. ``progress`` is the first offset that is not settled yet.
    """

    group = models.ForeignKey(
        "ems.ConsumerGroup",
        models.DO_NOTHING,
        related_name="deliveries",
        db_constraint=False,
        db_index=False,
        verbose_name=_("group"),
    )
    partition = models.ForeignKey(
        "ems.Partition",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
        verbose_name=_("partition"),
    )
    first_offset = models.BigIntegerField(_("first offset"))
    last_offset = models.BigIntegerField(_("last offset"))
    progress = models.BigIntegerField(_("progress"))
    kind = models.CharField(_("kind"), max_length=6, choices=Kind.choices, default=Kind.NEW)
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    client_id = models.CharField(_("client id"), max_length=190)
    thread = models.CharField(_("thread"), max_length=64)
    token = models.CharField(_("token"), max_length=32)
    state = models.CharField(_("state"), max_length=8, choices=State.choices, default=State.START)
    claimed_at = UtcDateTimeField(_("claimed at"), default=UtcNow)
    started_at = UtcDateTimeField(_("started at"), null=True, blank=True)
    deadline = UtcDateTimeField(_("deadline"))
    finished_at = UtcDateTimeField(_("finished at"), null=True, blank=True)
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

    # Of a claim in hand: its process died, so it runs with nothing beside it.
    alone = False

    @property
    def offsets(self) -> range:
        return range(self.first_offset, self.last_offset + 1)

    @property
    def using(self) -> str:
        return self._state.db or database()

    def start(self, timeout: timedelta) -> None:
        """Note that the handler is about to run; raises LeaseLost."""
        changes = {"started_at": UtcNow(), "deadline": UtcNow(timeout)}
        if not retrying(lambda: self._held().update(**changes), self.using):
            raise LeaseLost

    def extend(self, time_left: timedelta) -> bool:
        """Move the deadline; False if the lease is lost."""
        return bool(self._held().update(deadline=UtcNow(time_left)))

    def settle(
        self,
        progress: int,
        failures: Sequence[Failure] = (),
        *,
        max_retries: int,
        missing: int = 0,
        passed: int = 0,
        running: timedelta = timedelta(0),
    ) -> None:
        """Record the outcome of all offsets below ``progress``; past the last one, it ends.

        ``running`` is how long ago the first handler call began. Progress passes a failed offset
        only in the transaction that writes its retry or dead row, so a crash between two
        statements loses nothing. In an ordered group the one failure is that of the last offset
        below progress: the delivery ends there, and the cursor goes back to it. Raises LeaseLost.
        """
        ordered = self.group.ordered
        last_offset = progress - 1 if ordered and failures else self.last_offset
        ends = progress > last_offset
        state = State.START
        if ends:
            state = State.RETRY if failures or self.failed else State.DONE
        vendor = connections[self.using].vendor
        parameters = (
            progress,
            last_offset,
            state.value,
            len(failures),
            missing,
            passed,
            describe(failures[-1].error) if failures else None,
            sql.later(vendor, -running),
            ends,
            self.pk,
            self.token,
            self.progress,
        )

        def update() -> bool:
            if sql.execute(self.using, sql.SETTLE_DELIVERY[vendor], parameters):
                return True
            return self._written_before(progress=progress, state=state)

        def write() -> None:
            if not failures and self.kind != Kind.RETRY and not (ordered and ends):
                update()
                return
            with own_transaction(self.using):
                cursor = self._lock_cursor() if ordered else None
                if update():
                    self._write(failures, max_retries, cursor)

        retrying(write, self.using)
        self.progress, self.last_offset = progress, last_offset
        self.failed += len(failures)
        self.missing += missing

    def release(self) -> None:
        """Give back what has not been handed to the handler, with its attempt unspent.

        Raises LeaseLost.
        """

        def write() -> None:
            with own_transaction(self.using):
                cursor = self._lock_cursor() if self.group.ordered else None
                held = self._held().filter(progress=self.progress)
                released = held.update(state=State.RELEASED, finished_at=UtcNow())
                if released or self._written_before(state=State.RELEASED):
                    self._give_back(cursor)

        retrying(write, self.using)

    def expire(self, max_retries: int | None, delay: timedelta) -> bool:
        """Take the delivery from a dead or overdue client: what it has not settled is retried.

        Returns False if it ended in the meantime. A retry that was never started keeps its
        attempt; anything else has spent one, since it may be what killed the process. With
        ``max_retries=None`` nothing is judged: who claims it next knows how many there are.
        """
        died = ProcessDied()
        with own_transaction(self.using):
            # First, as everywhere: the cursor, then the delivery. Without a cursor it was reset.
            cursor = self._lock_cursor(skip_locked=True) if self.group.ordered else None
            if self.group.ordered and cursor is None and self._holds_cursor():
                return False
            expired = Delivery.objects.using(self.using).expired().filter(pk=self.pk)
            # A frozen process may hold the row: it must not keep the sweep from the others.
            row = expired.select_for_update(skip_locked=True).filter(progress=self.progress)
            if not list(row.values_list("pk")):
                return False
            # The token goes: with it the client could take this end for its own.
            Delivery.objects.using(self.using).filter(pk=self.pk).update(
                state=State.RETRY, token="", finished_at=UtcNow(), error=describe(died)
            )
            again = self.kind == Kind.RETRY or (cursor and self.attempt > 1)
            if again and self.started_at is None:
                self._give_back(cursor)
            elif cursor:
                self._expire_in_order(cursor, max_retries, delay)
            elif max_retries is not None and retries.exhausted(self.attempt, max_retries):
                failures = [Failure(offset, died) for offset in self._unsettled()]
                self._write(failures, max_retries)
            else:
                # Of several, at most one was running: the rest would only keep the process from
                # its work. As retries of their own, the next crash shows which it was.
                suspect = len(self._unsettled()) == 1
                alone = suspect and not self._client_is_live()
                self._wait(
                    [
                        Again(offset, self.attempt + 1, delay, describe(died), alone)
                        for offset in self._unsettled()
                    ]
                )
        return True

    def _expire_in_order(self, cursor: Cursor, max_retries: int | None, delay: timedelta) -> None:
        """The first message that is not settled spends an attempt; those after it wait."""
        attempt = self.attempt
        if max_retries is not None and retries.exhausted(attempt, max_retries):
            self._write([Failure(self.progress, ProcessDied())], max_retries, cursor)
            return
        alone = len(self._unsettled()) == 1 and not self._client_is_live()
        cursor.return_to(self.progress, attempt + 1, delay, alone=alone)

    def _lock_cursor(self, *, skip_locked: bool = False) -> Cursor | None:
        """The cursor of an ordered group that this delivery holds; None if it was reset."""
        held = self._held_cursor().select_for_update(skip_locked=skip_locked)
        return held.first()

    def _held_cursor(self) -> models.QuerySet[Cursor]:
        place = {"group": self.group_id, "partition": self.partition_id}
        return Cursor.objects.using(self.using).filter(**place, open_delivery=self.pk)

    def _holds_cursor(self) -> bool:
        return self._held_cursor().exists()

    def _held(self) -> DeliveryQuerySet:
        # Whoever lost the lease must not move or finish the delivery: another consumer may be
        # handling it. So every such write names the token.
        return Delivery.objects.using(self.using).open().filter(pk=self.pk, token=self.token)

    def _written_before(self, **values: Any) -> bool:
        """False if an earlier try, whose reply was lost, has written this; else raises LeaseLost.

        Only the holder of the token moves progress, and an update waits for the transaction
        whose outcome is unknown; so a row that shows our token and our values is our write.
        """
        row = Delivery.objects.using(self.using).filter(pk=self.pk, token=self.token)
        if row.filter(**values).exists():
            return False
        raise LeaseLost

    def _unsettled(self) -> range:
        return range(self.progress, self.last_offset + 1)

    def _client_is_live(self) -> bool:
        # A lease outlives its process: only a renewal after the deadline shows that the call, and
        # not the whole process, is what was overdue.
        clients = Consumer.objects.using(self.using).live()
        renewed = clients.filter(lease_until__gte=self.deadline + LEASE)
        return renewed.filter(client_id=self.client_id, group=self.group_id).exists()

    def _retries(self) -> RetryMessageQuerySet:
        return RetryMessage.objects.using(self.using)

    def _own_retry(self) -> RetryMessageQuerySet:
        """The row that this delivery holds, if it is a retry."""
        place = {"group": self.group_id, "partition": self.partition_id}
        return self._retries().filter(**place, offset=self.first_offset, delivery=self.pk)

    def _write(
        self, failures: Sequence[Failure], max_retries: int, cursor: Cursor | None = None
    ) -> None:
        """The rows of the failed offsets, and the end of the retry row of a successful one.

        ``cursor`` is that of an ordered group: it goes on, or back to the failed offset.
        """
        final = [f for f in failures if f.is_final(self.attempt, max_retries)]
        verdicts = [Verdict.of(f.error, f.offset, self.attempt) for f in final]
        if verdicts:
            dead = sum(self._bury(verdict) for verdict in verdicts)
            # A body that has been purged meanwhile leaves nothing to keep: it is counted.
            Delivery.objects.using(self.using).filter(pk=self.pk).update(
                dead=F("dead") + dead, missing=F("missing") + len(verdicts) - dead
            )
        waiting = [f.again(self.attempt) for f in failures if f not in final]
        if cursor:
            for again in waiting:
                cursor.return_to(again.offset, again.attempt, again.delay)
            for verdict in verdicts:
                cursor.return_to(verdict.offset + 1)
            if not failures:
                cursor.return_to(self.last_offset + 1)
        elif waiting:
            self._wait(waiting)
        elif self.kind == Kind.RETRY:
            # Locked whatever it says: a row that a WHERE leaves out is let go at READ COMMITTED,
            # and a redrive that came before the DELETE would be deleted.
            held = self._own_retry().select_for_update().values_list("again", flat=True)
            if any(list(held)):
                self._own_retry().update(delivery=None, again=False, due_at=UtcNow())
            else:
                self._own_retry().delete()

    def _give_back(self, cursor: Cursor | None = None) -> None:
        """What was not handed over waits again, its attempt unspent; a retry is as it was."""
        if cursor:
            attempt = self.attempt
            cursor.return_to(self.progress, attempt, alone=cursor.alone and attempt > 1)
        elif self.kind == Kind.RETRY:
            self._own_retry().update(delivery=None, due_at=UtcNow(), again=False)
        else:
            self._wait([Again(offset, self.attempt) for offset in self._unsettled()])

    def _wait(self, rows: Sequence[Again]) -> None:
        if self.kind != Kind.RETRY:
            self._retries().schedule(self.group_id, self.partition_id, rows)
            return
        (row,) = rows
        self._own_retry().update(
            delivery=None,
            attempt=row.attempt,
            due_at=Case(When(again=True, then=UtcNow()), default=UtcNow(row.delay)),
            again=False,
            alone=row.alone,
            last_error=row.error[:MAX_ERROR],
        )

    def _bury(self, verdict: Verdict) -> bool:
        letters = DeadMessage.objects.using(self.using)
        if letters.bury(self.group.topic_id, self.group_id, self.partition_id, verdict):
            return True
        # The message has been purged meanwhile; a redriven one is back in its dead letter.
        redriven = self._own_retry().exclude(dead_letter=None)
        origins = list(redriven.values_list("dead_letter", flat=True))
        return bool(letters.filter(pk__in=origins).reopen(verdict))

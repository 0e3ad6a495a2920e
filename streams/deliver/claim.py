"""Claims a contiguous range of a partition, or one retry, for a consumer under a lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

from django.db import connections

from streams.database.retrying import retrying
from streams.database.sql import claim as sql
from streams.database.sql.dialect import execute, fetch, insert, later, placeholders
from streams.database.transactions import own_transaction
from streams.deliver.cursor_locks import CursorLocks
from streams.deliver.held_back import held_back
from streams.deliver.pace import Pace
from streams.deliver.starts import Starts
from streams.errors import LeaseLost
from streams.log.ends import End
from streams.log.rewinds import REWOUND, note, readable
from streams.log.sequencer import Pass, sequence_sent
from streams.log.skips import move_cursor
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Partition,
    RetryMessage,
    UtcNow,
)
from streams.models.retry import RetryMessageQuerySet
from streams.telemetry import CLAIM, observed

# Seconds between two looks for ranges that were given back, while there is other work.
LOOK_SECONDS = 1.0
# Seconds between two looks for retries, and for cursors that are behind, while there is other work.
RETRY_LOOK_SECONDS = KNOWN_SECONDS = 0.25

# A cursor that is behind: its id, the id and the number of its partition, and where that ends.
Behind = tuple[int, int, int, int]


class Locked(NamedTuple):
    """The row of a cursor, whose lock this transaction has, and where its partition ends."""

    start: int
    stop: int | None
    replay: int
    attempt: int
    alone: bool
    end: int
    epoch: int
    has_held_keys: bool


@dataclass
class Claimer:
    """What makes the claims of one worker thread in one group."""

    group: ConsumerGroup
    client_id: str
    thread: str
    using: str
    token: str = ""  # of the deliveries; "": each has one of its own
    turn: int = 0
    pace: Pace = field(default_factory=Pace)
    locks: CursorLocks = field(default_factory=CursorLocks)  # of all threads of the process
    rank: Callable[[int], int] | None = None  # of a partition: see Registration
    starts: Starts = field(init=False)
    _unconfirmed: list[Delivery] = field(default_factory=list)
    _look_at: float = 0.0
    _retries_at: float = 0.0
    _known: list[Behind] = field(default_factory=list)
    _known_until: float = 0.0
    # Whether the last claim may have left something. If not, a wake-up says when there is more.
    more: bool = True
    sent: Pass = field(default_factory=Pass)  # what the last claim_sent() has sequenced

    def __post_init__(self) -> None:
        self.starts = Starts(self.group, self.using)

    @observed(CLAIM)
    def claim(self, batch: int, timeout: timedelta) -> Delivery | None:
        """Claim new messages for ``timeout``; return None if there are none.

        It is one batch of at most ``batch``, or as many batches as ``pace`` allows.

        Ranges that were given back are looked for once in LOOK_SECONDS, and when there is nothing
        new. A claim whose commit was not confirmed is looked up, and returned if it was committed.
        """
        self.more = True
        if self.starts.held:
            return None
        looks = not self.group.ordered
        first = looks and time.monotonic() >= self._look_at
        if first and (again := self._claim_given_back(batch, timeout)):
            return again
        if new := self._adopting(lambda: self._claim_new(batch, timeout)):
            # What was claimed has been seen, and no other message may get its offsets.
            place = new.partition
            note({place.pk: End(place.next_offset, place.epoch)}, self.using)
            return new
        return self._claim_given_back(batch, timeout) if looks and not first else None

    @observed(CLAIM)
    def claim_sent(self, row: Behind, batch: int, timeout: timedelta) -> Delivery | None:
        """Sequence what was sent to the partition of a cursor, and claim it in this transaction.

        What is locked by others, or fails, is left as it is: None.
        """
        taken: list[Delivery] = []

        def then() -> None:
            free = fetch(self.using, sql.LOCK_FREE_CURSOR[connections[self.using].vendor], [row[0]])
            if free and (delivery := self._take(row, Locked(*free[0]), batch, timeout)):
                taken.append(delivery)

        self.sent, self.more = Pass(busy=True), True
        # Who waits for a thread that claims from the cursor would only find it done.
        with self.locks.taken(row[0], wait=False) as mine:
            if mine:
                self.sent = sequence_sent(self.using, row[1], then)
        if self._unconfirmed and not self.sent.sequenced:
            return self._adopting(lambda: None)  # the reply to its commit may have been lost
        self._unconfirmed.clear()
        if not taken:
            return None
        place = taken[0].partition
        self.more = self.group.ordered or taken[0].last_offset + 1 < place.next_offset
        note({place.pk: End(place.next_offset, place.epoch)}, self.using)
        return taken[0]

    def _claim_given_back(self, batch: int, timeout: timedelta) -> Delivery | None:
        """Claim a range that another process, or this one, has given back."""
        found = self._adopting(lambda: self._take_given_back(batch, timeout))
        self._look_at = 0.0 if found else time.monotonic() + LOOK_SECONDS
        return found

    @property
    def retries_unknown(self) -> bool:
        """Tell whether a look for retries is due: the last one found one, or is some time ago."""
        return time.monotonic() >= self._retries_at

    @observed(CLAIM)
    def claim_retry(self, timeout: timedelta) -> tuple[Delivery, RetryMessage] | None:
        """Claim the retry that has been due the longest, for ``timeout``; None if none is due.

        Its row is as it was when it was claimed. Raises LeaseLost.
        """
        self.more = True
        rows: list[RetryMessage] = []
        delivery = self._adopting(lambda: self._claim_retry(timeout, rows))
        self._retries_at = 0.0 if delivery else time.monotonic() + RETRY_LOOK_SECONDS
        if delivery is None:
            return None
        if not rows:  # an earlier claim_sent() was in doubt, and what it has claimed is no retry
            raise LeaseLost
        return delivery, rows[-1]  # of the last try, which is also the one that may be adopted

    def _adopting(self, work: Callable[[], Delivery | None]) -> Delivery | None:
        def again() -> Delivery | None:
            if self._unconfirmed:
                found = self._committed(self._unconfirmed[-1])
                # Removed only after the look-up, which is repeated if the connection breaks.
                self._unconfirmed.pop()
                if found:
                    return found
            return work()

        try:
            return retrying(again, self.using)
        finally:
            self._unconfirmed.clear()

    def _committed(self, tried: Delivery) -> Delivery | None:
        with own_transaction(self.using):
            # The transaction in doubt holds this lock until it ends. Once this one has the lock,
            # the outcome is known.
            if tried.kind == Kind.RETRY:
                rows = self._retries().filter(
                    partition=tried.partition_id, offset=tried.first_offset
                )
                list(rows.select_for_update())
            else:
                cursors = Cursor.objects.using(self.using).filter(partition=tried.partition_id)
                list(cursors.filter(group=self.group).order_by("replay").select_for_update())
            place = Delivery.objects.using(self.using).filter(
                group=self.group,
                partition=tried.partition_id,
                first_offset=tried.first_offset,
            )
            # Pulls with one request id share their token: the id tells whose claim it is.
            found = (
                place.open()
                .filter(pk=tried.pk, token=tried.token)
                .select_related("partition")
                .first()
            )
        if found:
            found.group = self.group
            found.alone = tried.alone
        return found

    def _claim_new(self, batch: int, timeout: timedelta) -> Delivery | None:
        known = self._known if time.monotonic() < self._known_until else []
        if taken := self._claim_from(known, batch, timeout):
            return taken
        vendor = connections[self.using].vendor
        behind = fetch(self.using, sql.CURSORS_BEHIND[vendor], [self.group.pk])
        # Those of an ordered group are held by a delivery most of the time. With ranks, a partition
        # of a lower one may have something by the next claim.
        self._known = [] if self.group.ordered or self.rank else behind
        self._known_until = time.monotonic() + KNOWN_SECONDS
        taken = self._claim_from(behind, batch, timeout)
        self.more = self.group.ordered or bool(self._known) or bool(self.rank and taken)
        return taken

    def _claim_from(
        self, behind: Sequence[Behind], batch: int, timeout: timedelta
    ) -> Delivery | None:
        """Claim from one of the cursors ``behind``; None if none of them has anything left."""
        if not behind:
            return None
        if self.rank is not None:
            return self._claim_by_rank(behind, self.rank, batch, timeout)
        self.turn += 1
        first = self.turn % len(behind)
        turns = [*behind[first:], *behind[:first]]
        for row in turns if len(turns) > 1 or self.group.ordered else ():
            with self.locks.taken(row[0], wait=False) as mine:
                if mine and (taken := self._take_free(row, batch, timeout)):
                    return taken
        if self.group.ordered:
            return None  # the holder of the lock is about to claim the messages
        # All cursors are locked, which does not mean that there is nothing to claim, or there is
        # only one: wait for it.
        with self.locks.taken(turns[0][0], wait=True):
            return self._take_after_a_wait(turns[0], batch, timeout)

    def _claim_by_rank(
        self, behind: Sequence[Behind], rank: Callable[[int], int], batch: int, timeout: timedelta
    ) -> Delivery | None:
        """Claim from the cursor of the lowest rank, after whoever claims from it now."""
        for row in sorted(behind, key=lambda row: rank(row[2])):
            with self.locks.taken(row[0], wait=True):
                if taken := self._take_after_a_wait(row, batch, timeout):
                    return taken
        return None

    def _take_free(self, row: Behind, batch: int, timeout: timedelta) -> Delivery | None:
        """Claim from a cursor, unless another process has locked it."""
        with own_transaction(self.using):
            free = fetch(self.using, sql.LOCK_FREE_CURSOR[connections[self.using].vendor], [row[0]])
            return self._take(row, Locked(*free[0]), batch, timeout) if free else None

    def _take_after_a_wait(self, row: Behind, batch: int, timeout: timedelta) -> Delivery | None:
        """Claim from a cursor after whoever has locked it."""
        cursor_id, partition_id = row[:2]
        with own_transaction(self.using):
            rows = fetch(self.using, sql.LOCK_CURSOR[connections[self.using].vendor], [cursor_id])
            if not rows:
                return None
            locked = Locked(*rows[0])
            if locked.end - locked.start < batch:
                # Others may have claimed up to this end, and messages come after it, while the lock
                # was waited for. No server promises to have read it after the wait.
                ((end, epoch),) = fetch(self.using, sql.PARTITION_END, [partition_id])
                locked = locked._replace(end=end, epoch=epoch)
            return self._take(row, locked, batch, timeout)

    def _take_given_back(self, batch: int, timeout: timedelta) -> Delivery | None:
        vendor = connections[self.using].vendor
        for pk, partition_id in fetch(self.using, sql.GIVEN_BACK[vendor], [self.group.pk]):
            with own_transaction(self.using):
                # Under the lock of the cursor, as every claim of a range: see _committed(), and the
                # resets, which revoke the open deliveries that they see.
                cursors = Cursor.objects.using(self.using).filter(group=self.group, replay=0)
                list(cursors.filter(partition=partition_id).select_for_update().values_list("pk"))
                rows = Delivery.objects.using(self.using).given_back().filter(pk=pk)
                # One table: a locking join would lock the partition, which the sequencer holds.
                if row := rows.select_for_update().first():
                    partition = Partition.objects.using(self.using).get(pk=partition_id)
                    return self._take_over(row, partition, batch, timeout)
        return None

    def _take_over(
        self, row: Delivery, partition: Partition, batch: int, timeout: timedelta
    ) -> Delivery | None:
        """Claim the first offsets of a range that was given back; the rest stays."""
        start = row.first_offset
        size = self.pace.messages(batch, len(row.offsets))
        end = self.starts.cut(start, min(row.last_offset + 1, start + size))
        if end == start:
            return None
        if end > row.last_offset:
            execute(self.using, sql.DELETE_GIVEN_BACK, [row.pk])
        else:
            execute(self.using, sql.CUT_GIVEN_BACK, [end, end, row.pk])
        return self._insert(Kind(row.kind), partition, start, end, row.attempt, timeout)

    def _take(
        self,
        row: Behind,
        locked: Locked,
        batch: int,
        timeout: timedelta,
    ) -> Delivery | None:
        """Move the cursor, whose row is locked, and cover what it passes with a delivery."""
        start, stop, replay, attempt, alone, end, epoch, has_held_keys = locked
        cursor_id, *place = row[:3]
        names = ["id", "number", "next_offset", "epoch"]
        partition = Partition.from_db(self.using, names, [*place, end, epoch])
        kind = Kind.REPLAY if replay else Kind.NEW
        last = end if stop is None else min(end, stop)
        if epoch and last > start:
            left = readable(partition.pk, epoch, start, last, self.using)
            if left.start > start:
                # The log was rewound here. The cursor passes the offsets that no message has.
                # What failed there is left out too: the attempts of what comes next begin anew.
                names = ["id", "group_id", "partition_id", "replay"]
                cursor = Cursor.from_db(
                    self.using, names, [cursor_id, self.group.pk, partition.pk, replay]
                )
                move_cursor(cursor, start, left.start, UtcNow(), self.using, thread=REWOUND)
                attempt, alone = 1, False
            start, last = left.start, left.stop
        if last <= start:
            return None
        size = batch if self.group.ordered else self.pace.messages(batch, last - start)
        # A message that failed before is claimed by itself, so that no other fails with it.
        end = self.starts.cut(start, min(last, start + (size if attempt == 1 else 1)))
        parked = None
        if has_held_keys and end > start:
            names = ["id", "partition_id", "next_offset", "attempt", "alone"]
            values = [cursor_id, partition.pk, start, attempt, bool(alone)]
            cursor = Cursor.from_db(self.using, names, values)
            end, parked = held_back(self.group, cursor, end, self.using)
        if end == start:
            return None
        if end == last and row in self._known:
            self._known.remove(row)
        execute(self.using, sql.MOVE_CURSOR, [end, cursor_id])
        delivery = self._insert(kind, partition, start, end, attempt, timeout, parked)
        delivery.alone = bool(alone)
        if self.group.ordered:
            execute(self.using, sql.HOLD_CURSOR, [delivery.pk, cursor_id])
        return delivery

    def _claim_retry(self, timeout: timedelta, read: list[RetryMessage]) -> Delivery | None:
        """Claim a retry, whose row is added to ``read``."""
        vendor = connections[self.using].vendor
        if self.starts.held or not fetch(self.using, sql.ANY_DUE_RETRY[vendor], [self.group.pk]):
            return None
        with own_transaction(self.using):
            locked = fetch(self.using, sql.LOCK_DUE_RETRY[vendor], [self.group.pk])
            if not locked:
                return None
            if not self.starts.cut(0, 1):
                return None
            row = self._retries().select_related("partition").get(pk=locked[0][0])
            read.append(row)
            delivery = self._insert(
                Kind.RETRY, row.partition, row.offset, row.offset + 1, row.attempt, timeout
            )
            # Filtered by the key alone: with the group in the filter, a server may read all of the
            # group's retries.
            rows = RetryMessage.objects.using(self.using).filter(pk=row.pk)
            rows.update(delivery=delivery.pk)
            row.delivery_id = delivery.pk
            return delivery

    def _insert(
        self,
        kind: Kind,
        partition: Partition,
        start: int,
        end: int,
        attempt: int,
        timeout: timedelta,
        parked: str | None = None,
    ) -> Delivery:
        delivery = Delivery(
            first_offset=start,
            last_offset=end - 1,
            progress=start,
            kind=kind,
            attempt=attempt,
            client_id=self.client_id,
            thread=self.thread[:64],
            token=self.token or uuid4().hex,
            parked=parked,
        )
        # Set before the relations: otherwise Django would ask the project's database routers.
        delivery._state.db = self.using
        delivery.group, delivery.partition = self.group, partition
        self._unconfirmed.append(delivery)
        vendor = connections[self.using].vendor
        delivery.pk = insert(
            self.using,
            sql.INSERT_DELIVERY[vendor],
            [
                self.group.pk,
                partition.pk,
                start,
                end - 1,
                start,
                kind.value,
                attempt,
                self.client_id,
                delivery.thread,
                delivery.token,
                later(vendor, timeout),
                parked,
            ],
        )
        delivery._state.adding = False
        return delivery

    def _retries(self) -> RetryMessageQuerySet:
        return RetryMessage.objects.using(self.using).filter(group=self.group)


def groups_with_due_retries(group_ids: Sequence[int], using: str) -> set[int]:
    """Return those of ``group_ids`` that have a retry to claim."""
    if not group_ids:
        return set()
    vendor = connections[using].vendor
    statement = sql.GROUPS_WITH_DUE_RETRIES[vendor] % placeholders(group_ids)
    return {row[0] for row in retrying(fetch, using, using, statement, group_ids)}

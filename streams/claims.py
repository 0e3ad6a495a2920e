"""Claims: a consumer takes a contiguous range of a partition, or one retry, under a lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from django.db import connections

from streams import sql
from streams.conf import CLAIM_BYTES
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
from streams.transactions import own_transaction, retrying


@dataclass
class Claimer:
    """The claims of one worker thread in one group."""

    group: ConsumerGroup
    client_id: str
    thread: str
    using: str
    turn: int = 0
    _unconfirmed: list[Delivery] = field(default_factory=list)

    def claim(self, batch: int, timeout: timedelta) -> Delivery | None:
        """Claim up to ``batch`` new messages for ``timeout``; None if there are none.

        A claim whose commit was not confirmed is looked up, and adopted if it is there.
        """
        return self._adopting(lambda: self._claim_new(batch, timeout))

    def claim_retry(self, timeout: timedelta) -> tuple[Delivery, RetryMessage] | None:
        """Claim the retry that has been due for longest, for ``timeout``; None if there is none."""
        delivery = self._adopting(lambda: self._claim_retry(timeout))
        if delivery is None:
            return None
        return delivery, self._retries().get(delivery=delivery.pk, offset=delivery.first_offset)

    def _adopting(self, work: Callable[[], Delivery | None]) -> Delivery | None:
        def again() -> Delivery | None:
            if self._unconfirmed:
                tried = self._unconfirmed.pop()
                if found := self._committed(tried):
                    return found
            return work()

        try:
            return retrying(again, self.using)
        finally:
            self._unconfirmed.clear()

    def _committed(self, tried: Delivery) -> Delivery | None:
        with own_transaction(self.using):
            # The claim held this lock to its end: once we have it, the outcome is known.
            if tried.kind == Kind.RETRY:
                rows = self._retries().filter(
                    partition=tried.partition_id, offset=tried.first_offset
                )
                list(rows.select_for_update())
            else:
                cursors = Cursor.objects.using(self.using).filter(partition=tried.partition_id)
                list(cursors.filter(group=self.group, replay=0).select_for_update())
            place = Delivery.objects.using(self.using).filter(
                group=self.group,
                partition=tried.partition_id,
                first_offset=tried.first_offset,
            )
            found = place.open().filter(token=tried.token).first()
        if found:
            found.group = self.group
        return found

    def _claim_new(self, batch: int, timeout: timedelta) -> Delivery | None:
        cursors = Cursor.objects.using(self.using)
        behind = list(
            cursors.behind().filter(group=self.group).order_by("id").values_list("id", flat=True)
        )
        if not behind:
            return None
        self.turn += 1
        first = self.turn % len(behind)
        for cursor_id in behind[first:] + behind[:first]:
            with own_transaction(self.using):
                locked = cursors.select_for_update(skip_locked=True).filter(pk=cursor_id).first()
                if locked:
                    return self._take(locked, batch, timeout)
        # All are locked, which is not the same as idle: queue up for one.
        with own_transaction(self.using):
            locked = cursors.select_for_update().filter(pk=behind[first]).first()
            return self._take(locked, batch, timeout) if locked else None

    def _take(self, cursor: Cursor, batch: int, timeout: timedelta) -> Delivery | None:
        start = cursor.next_offset
        partition = Partition.objects.using(self.using).get(pk=cursor.partition_id)
        end = partition.next_offset
        if cursor.stop_offset is not None:
            end = min(end, cursor.stop_offset)
        end = min(end, start + batch)
        if end <= start:
            return None
        end = self._bounded_in_bytes(cursor.partition_id, start, end)
        Cursor.objects.using(self.using).filter(pk=cursor.pk).update(next_offset=end)
        return self._insert(Kind.NEW, partition, start, end, 1, timeout)

    def _bounded_in_bytes(self, partition_id: int, start: int, end: int) -> int:
        if end == start + 1:
            return end
        statement = sql.SIZES[connections[self.using].vendor]
        total = 0
        for offset, size in sql.fetch(self.using, statement, [partition_id, start, end]):
            total += size
            if total > CLAIM_BYTES and offset > start:
                return int(offset)
        return end

    def _claim_retry(self, timeout: timedelta) -> Delivery | None:
        due = self._retries().due().order_by("due_at")
        if not due.exists():
            return None
        with own_transaction(self.using):
            row = due.select_for_update(skip_locked=True).first()
            if row is None:
                return None
            offset = row.offset
            delivery = self._insert(
                Kind.RETRY, row.partition, offset, offset + 1, row.attempt, timeout
            )
            self._retries().filter(pk=row.pk).update(delivery=delivery.pk)
            return delivery

    def _insert(
        self,
        kind: Kind,
        partition: Partition,
        start: int,
        end: int,
        attempt: int,
        timeout: timedelta,
    ) -> Delivery:
        delivery = Delivery(
            group=self.group,
            partition=partition,
            first_offset=start,
            last_offset=end - 1,
            progress=start,
            kind=kind,
            attempt=attempt,
            client_id=self.client_id,
            thread=self.thread[:64],
            token=uuid4().hex,
            deadline=UtcNow(timeout),
        )
        self._unconfirmed.append(delivery)
        delivery.save(using=self.using, force_insert=True)
        return delivery

    def _retries(self) -> RetryMessageQuerySet:
        return RetryMessage.objects.using(self.using).filter(group=self.group)

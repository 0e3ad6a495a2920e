"""Skips messages that groups have not finished, for a forced purge, and records it.

Every offset that a cursor passes is covered by a delivery, here by a skipped one, and so is every
retry that is given up. Open deliveries end, and their holders lose the lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from streams.consume.outcome.any_order import split
from streams.database.transactions import own_transaction
from streams.log.held_keys import GroupPartition, lock_all, repair
from streams.log.skips import give_up_retries, move_cursor
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Partition,
    RetryMessage,
    State,
    UtcNow,
)
from streams.models.retry import Again
from streams.retain.purge_floor import protecting

# The most retries, or deliveries, of one step. The partition is locked meanwhile, for some
# hundredths of a second.
STEP = 500
CLIENT = "purge"


@dataclass(frozen=True)
class Skipped:
    """What groups have skipped unfinished, counted; a message counts once for each group."""

    messages: int = 0
    deliveries: int = 0
    retries: int = 0

    def __add__(self, other: Skipped) -> Skipped:
        return Skipped(
            self.messages + other.messages,
            self.deliveries + other.deliveries,
            self.retries + other.retries,
        )

    def __str__(self) -> str:
        return _("%(m)d unread, %(d)d deliveries ended, %(r)d retries given up") % {
            "m": self.messages,
            "d": self.deliveries,
            "r": self.retries,
        }

    @property
    def rows(self) -> int:
        return self.messages + self.deliveries + self.retries


def skip_groups(partition: Partition, target: int, using: str) -> Skipped:
    """Move all groups past the offsets below ``target``, in one step of at most STEP rows.

    Returns what was skipped; 0 rows mean that nothing is left. Rows that others have locked are
    not skipped, and no group moves past them.
    """
    with own_transaction(using):
        return _Skip(partition, target, using).run()


class _Skip:
    """One step of skipping. It locks in the order partition, cursors, deliveries, keys, retries."""

    def __init__(self, partition: Partition, target: int, using: str) -> None:
        rows = Partition.objects.using(using).filter(pk=partition.pk)
        locked = rows.select_for_update().get()
        self._using = using
        self._partition = locked
        self._target = min(target, locked.next_offset)
        if partition.topic.archive:
            self._target = min(self._target, locked.archived_offset)
        for reader in protecting(partition.topic, using):
            self._target = min(self._target, reader.position(locked.pk))
        groups = ConsumerGroup.objects.using(using).filter(topic=locked.topic_id)
        self._groups = {group.pk: group for group in groups.order_by("pk")}

    def run(self) -> Skipped:
        # All cursors of the partition: while they are locked, nothing more is claimed in it.
        cursors = list(self._rows(Cursor).select_for_update().order_by("pk"))
        deliveries = self._lock_deliveries()
        held = {pk: lock_all(self._place(pk), self._using) for pk in self._by_key()}
        retries = self._lock_retries({delivery.pk for delivery in deliveries})
        deliveries = [one for one in deliveries if one.progress < self._target]
        retries = [one for one in retries if one.offset < self._target]
        for delivery in deliveries:
            # What is settled of it, in any order, stays so. Of one in lanes the cursor goes back.
            ordered = self._groups[delivery.group_id].ordered
            for part in [delivery] if ordered else split(delivery):
                self._end(part, cursors)
        give_up_retries(retries, self._using, **_by_a_purge())
        for pk, keys in held.items():
            passed = [key for key, one in keys.items() if one.head < self._target]
            repair(self._place(pk), passed, self._using)
        messages = sum(self._move(cursor) for cursor in cursors)
        return Skipped(messages, len(deliveries), len(retries))

    def _rows(self, model: Any) -> QuerySet[Any]:
        rows = model.objects.using(self._using)
        return rows.filter(partition=self._partition.pk, group__in=self._groups)  # type: ignore[no-any-return]

    def _by_key(self) -> list[int]:
        return [pk for pk, group in self._groups.items() if group.by_key]

    def _place(self, group: int) -> GroupPartition:
        return GroupPartition(group, self._partition.pk)

    def _stop_at(self, offsets: Iterable[int]) -> None:
        self._target = min([self._target, *offsets])

    def _lock_deliveries(self) -> list[Delivery]:
        first = self._partition.first_offset
        open_ = self._rows(Delivery).filter(
            state=State.START, progress__gte=first, progress__lt=self._target
        )
        some = list(open_.order_by("progress", "pk").values_list("pk", "progress")[: STEP + 1])
        self._stop_at(progress for _pk, progress in some[STEP:])
        ids = [pk for pk, _progress in some[:STEP]]
        mine = Delivery.objects.using(self._using).filter(pk__in=ids, state=State.START)
        locked = list(mine.select_for_update(skip_locked=True).order_by("pk"))
        # An atomic handler has its delivery locked until it ends. The step does not wait for it.
        got = {delivery.pk for delivery in locked}
        left = open_.exclude(pk__in=got).values_list("progress", flat=True)
        self._stop_at(left)
        return locked

    def _lock_retries(self, ended: set[int]) -> list[RetryMessage]:
        waiting: list[RetryMessage] = []
        # A redriven message has its body in the dead letter, so the purge does not affect it.
        below = {"offset__gte": self._partition.first_offset, "dead_letter": None}
        for group in self._groups:
            rows = self._rows(RetryMessage).filter(group=group, **below).order_by("offset")
            some = list(rows.filter(offset__lt=self._target)[: STEP + 1])
            self._stop_at(row.offset for row in some[STEP:])
            ids = [row.pk for row in some[:STEP]]
            mine = RetryMessage.objects.using(self._using).filter(pk__in=ids)
            locked = {row.pk: row for row in mine.select_for_update(skip_locked=True)}
            for row in some[:STEP]:
                now = locked.get(row.pk)
                if now is not None and now.delivery_id is None:
                    waiting.append(now)
                elif now is None or now.delivery_id not in ended:
                    self._stop_at([row.offset])
        return waiting

    def _end(self, delivery: Delivery, cursors: list[Cursor]) -> None:
        """End a delivery as skipped, and remove its token, so that its holder can write nothing."""
        rows = Delivery.objects.using(self._using).filter(pk=delivery.pk)
        rows.update(
            state=State.SKIPPED, token="", finished_at=UtcNow(), error=_("skipped by a purge")
        )
        if delivery.kind == Kind.RETRY:
            place = {"group": delivery.group_id, "offset": delivery.first_offset}
            own = self._rows(RetryMessage).filter(**place, delivery=delivery.pk)
            own.exclude(dead_letter=None).update(delivery=None, due_at=UtcNow())
            own.filter(dead_letter=None).delete()
            return
        end = delivery.last_offset + 1
        if self._groups[delivery.group_id].ordered:
            for cursor in cursors:
                if cursor.open_delivery == delivery.pk:
                    # The delivery covers its own offsets; _move() skips those after it.
                    cursor.next_offset = min(self._target, end)
                    cursor.return_to(cursor.next_offset)
            return
        kept = range(max(delivery.progress, self._target), end)
        rest = [Again(offset, delivery.attempt) for offset in kept]
        retries = RetryMessage.objects.using(self._using)
        retries.schedule(delivery.group_id, self._partition.pk, rest)

    def _move(self, cursor: Cursor) -> int:
        start, end = cursor.next_offset, cursor.limited(self._target)
        if start >= end:
            return 0
        move_cursor(cursor, start, end, UtcNow(), self._using, **_by_a_purge())
        return end - start


def _by_a_purge() -> dict[str, str]:
    return {"client_id": CLIENT, "error": _("skipped by a purge")}

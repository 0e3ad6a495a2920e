"""What grows old beside the messages: deliveries, dead letters, dedup keys, finished replays.

Each step deletes one small batch after the other and yields the rows of each, so it can be left
and begun again anywhere. What others have locked is left for another night.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from streams import runtime_settings
from streams.database.retrying import retrying
from streams.database.sql.dialect import delete_by_id, execute
from streams.database.transactions import own_transaction
from streams.models import (
    Cursor,
    DeadMessage,
    DedupKey,
    Delivery,
    Kind,
    RetryMessage,
    State,
    UtcNow,
)
from streams.retain.purge_floor import finished_below

BATCH = 500
# A sender that has seen an expired key may be about to take it.
KEY_GRACE = timedelta(hours=1)


def dead_letters(using: str) -> Iterator[int]:
    """Dead letters older than deadRetentionDays, but those that a retry has its body from."""
    days = runtime_settings.system("deadRetentionDays", using)
    if days:
        old = DeadMessage.objects.using(using).filter(died_at__lt=UtcNow(-timedelta(days=days)))
        needed = RetryMessage.objects.using(using).filter(
            group=OuterRef("group"),
            partition=OuterRef("partition"),
            offset=OuterRef("offset"),
            dead_letter__isnull=False,
        )
        yield from _batches(old.filter(~Exists(needed)), "died_at", using)


def dedup_keys(using: str) -> Iterator[int]:
    """Keys whose window has ended."""
    old = DedupKey.objects.using(using).filter(expires_at__lt=UtcNow(-KEY_GRACE))
    yield from _batches(old, "expires_at", using)


def replays(using: str) -> Iterator[int]:
    """Replays that have come to their end, and have nothing open."""
    in_hand = Delivery.objects.using(using).filter(
        state=State.START,
        kind=Kind.REPLAY,
        group=OuterRef("group"),
        partition=OuterRef("partition"),
    )
    ended = Cursor.objects.using(using).filter(
        ~Exists(in_hand), replay__gt=0, next_offset__gte=F("stop_offset"), open_delivery=None
    )
    yield from _batches(ended, "pk", using)


def _batches(rows: QuerySet[Any], order: str, using: str) -> Iterator[int]:
    while ids := retrying(lambda: list(rows.order_by(order).values_list("pk")[:BATCH]), using):
        deleted = retrying(lambda these=ids: _delete(rows, these, using), using)  # type: ignore[misc]
        if not deleted:
            return
        yield deleted


def _delete(rows: QuerySet[Any], ids: list[tuple[int]], using: str) -> int:
    model = rows.model
    with own_transaction(using):
        these = model._default_manager.using(using).filter(pk__in=[pk for (pk,) in ids])
        locked = list(these.select_for_update(skip_locked=True).values_list("pk", flat=True))
        # Looked at again under the lock: a letter may have been redriven meanwhile.
        still = list(rows.filter(pk__in=locked).values_list("pk", flat=True))
        return _delete_ids(model, still, using)


def _delete_ids(model: Any, ids: Collection[int], using: str, condition: str = "1 = 1") -> int:
    if not ids:
        return 0
    vendor = connections[using].vendor
    table = model._meta.db_table
    return execute(using, delete_by_id(vendor, table, ids, condition))


def deliveries(using: str) -> Iterator[int]:
    """Deliveries that ended more than deliveryRetentionDays ago, from the lowest offset on.

    The audit wants every offset that a group has passed to be covered. So log_offset of the cursor
    is moved first, no further than the group has finished, and committed: the audit begins
    there, and beyond it still finds what was deleted by other hands.
    """
    days = runtime_settings.system("deliveryRetentionDays", using)
    if not days:
        return
    cursors = Cursor.objects.using(using).filter(replay=0).select_related("partition__topic")
    for cursor in retrying(lambda: list(cursors.order_by("pk")), using):
        yield from _Log(cursor, timedelta(days=days), using).purge()


class _Log:
    """The deliveries of one group in one partition."""

    def __init__(self, cursor: Cursor, age: timedelta, using: str) -> None:
        self._cursor = cursor
        self._age = age
        self._using = using

    def purge(self) -> Iterator[int]:
        limit = retrying(lambda: finished_below(self._cursor, self._using), self._using)
        place = (-1, 0)
        while rows := retrying(lambda after=place: self._rows(after), self._using):  # type: ignore[misc]
            edge = limit if len(rows) < BATCH else min(limit, rows[-1][1])
            for _pk, first, last, is_old in rows:
                if not is_old and last >= self._cursor.log_offset:
                    edge = min(edge, first)  # nothing beyond it is touched before it is old
                    break
            self._move_to(edge)
            kept_from = self._cursor.log_offset
            old = [pk for pk, _first, last, is_old in rows if is_old and last < kept_from]
            yield self._delete(old)
            if edge < rows[-1][1] or len(rows) < BATCH:
                return
            # Those that begin at the edge are looked at again: they may end above it.
            below = [row for row in rows if row[1] < edge] or rows
            place = (below[-1][1], below[-1][0])

    def _rows(self, after: tuple[int, int]) -> list[tuple[int, int, int, bool]]:
        """The next deliveries in order of their place, and whether each has outlived its time."""
        offset, pk = after
        log = Delivery.objects.using(self._using).filter(
            group=self._cursor.group_id, partition=self._cursor.partition_id
        )
        rest = log.filter(first_offset__gte=offset).exclude(first_offset=offset, pk__lte=pk)
        rows = rest.annotate(
            ended=Coalesce("finished_at", "claimed_at"), limit=UtcNow(-self._age)
        ).order_by("first_offset", "pk")
        columns = ("pk", "first_offset", "last_offset", "state", "ended", "limit")
        return [
            (row_pk, first, last, state != State.START and ended < limit)
            for row_pk, first, last, state, ended, limit in rows.values_list(*columns)[:BATCH]
        ]

    def _move_to(self, offset: int) -> None:
        if offset <= self._cursor.log_offset:
            return
        mine = Cursor.objects.using(self._using).filter(
            Q(log_offset__lt=offset), pk=self._cursor.pk
        )
        retrying(lambda: mine.update(log_offset=offset), self._using)
        self._cursor.log_offset = offset

    def _delete(self, ids: list[int]) -> int:
        def work() -> int:
            with own_transaction(self._using):
                return _delete_ids(Delivery, ids, self._using, "`state` <> 'START'")

        return retrying(work, self._using)


# Letters before deliveries: what a letter was redriven for is told by deliveries.
OLD_ROWS: dict[str, Callable[[str], Iterator[int]]] = {
    "dead letters": dead_letters,
    "deliveries": deliveries,
    "replays": replays,
    "dedup keys": dedup_keys,
}

"""Deletes old rows beside the messages, such as deliveries, dead letters and dedup keys.

Each step deletes one small batch after the other and yields the number of rows of each, so it can
be stopped after any batch and begun again. Rows that others have locked are left for another night.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import takewhile
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from streams import runtime_settings
from streams.database import batches
from streams.database.batches import delete_rows, in_batches
from streams.database.retrying import retrying
from streams.database.sql.rate_keys import A_DAY_AGO
from streams.database.transactions import own_transaction
from streams.models import (
    Cursor,
    DeadMessage,
    DedupKey,
    Delivery,
    KeyBucket,
    Kind,
    LetterEdit,
    PreparedRow,
    PreparedState,
    Redrive,
    RedriveState,
    RetryMessage,
    State,
    UtcNow,
)
from streams.retain.purge_floor import finished_below

# A key is kept this long after its window: a sender that has seen its row may be about to lock it.
KEY_GRACE = timedelta(hours=1)


def dead_letters(using: str) -> Iterator[int]:
    """Delete dead letters older than deadRetentionDays, except those that a retry needs."""
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


def edits(using: str) -> Iterator[int]:
    """Delete what was kept of edits of dead letters that have been deleted."""
    letter = DeadMessage.objects.using(using).filter(pk=OuterRef("letter"))
    rows = LetterEdit.objects.using(using).filter(~Exists(letter))
    yield from _batches(rows, "pk", using)


def dedup_keys(using: str) -> Iterator[int]:
    """Delete dedup keys whose window has ended."""
    old = DedupKey.objects.using(using).filter(expires_at__lt=UtcNow(-KEY_GRACE))
    yield from _batches(old, "expires_at", using)


def replays(using: str) -> Iterator[int]:
    """Delete replays that have reached their end, and have no open delivery."""
    in_hand = Delivery.objects.using(using).filter(
        state=State.START,
        kind=Kind.REPLAY,
        group=OuterRef("group"),
        partition=OuterRef("partition"),
    )
    ended = Cursor.objects.using(using).ended().filter(~Exists(in_hand))
    yield from _batches(ended, "pk", using)


def redrives(using: str) -> Iterator[int]:
    """Delete redrives at a rate, of all namespaces, that ended deliveryRetentionDays ago."""
    days = runtime_settings.system("deliveryRetentionDays", using)
    if days:
        old = Redrive._base_manager.using(using).filter(
            state=RedriveState.DONE, finished_at__lt=UtcNow(-timedelta(days=days))
        )
        yield from _batches(old, "pk", using)


def prepared_messages(using: str) -> Iterator[int]:
    """Delete prepared messages decided more than preparedRetentionDays ago, sent or rolled back.

    What a person must look at is never deleted.
    """
    days = runtime_settings.system("preparedRetentionDays", using)
    ended = [PreparedState.SENT, PreparedState.ROLLED_BACK]
    rows = PreparedRow._base_manager.using(using).filter(state__in=ended, disputed_at=None)
    old = rows.filter(decided_at__lt=UtcNow(-timedelta(days=days)))
    yield from _batches(old, "decided_at", using)


def key_buckets(using: str) -> Iterator[int]:
    """Delete the rate buckets of keys that have begun nothing for a day."""
    day = RawSQL(A_DAY_AGO[connections[using].vendor], ())  # noqa: S611 - a constant
    old = KeyBucket.objects.using(using).filter(next_slot__lt=day, queued_until__lt=day)
    yield from _batches(old, "pk", using)


def _batches(rows: QuerySet[Any], order: str, using: str) -> Iterator[int]:
    def delete(ids: list[int]) -> int:
        with own_transaction(using):
            these = rows.model._base_manager.using(using).filter(pk__in=ids)
            locked = list(these.select_for_update(skip_locked=True).values_list("pk", flat=True))
            # Checked again under the lock: a letter may have been redriven meanwhile.
            still = list(rows.filter(pk__in=locked).values_list("pk", flat=True))
            return delete_rows(rows.model, still, using)

    return takewhile(bool, in_batches(rows.order_by(order), delete, using))


def deliveries(using: str) -> Iterator[int]:
    """Delete deliveries that ended more than deliveryRetentionDays ago, from the lowest offset on.

    The audit checks that a delivery covers every offset that a group has passed, from log_offset of
    the cursor on. So log_offset is moved first, no further than the group has finished, and
    committed. Above it the audit still finds rows that were deleted by hand.
    """
    days = runtime_settings.system("deliveryRetentionDays", using)
    if not days:
        return
    cursors = Cursor.objects.using(using).filter(replay=0).select_related("partition__topic")
    for cursor in retrying(list, using, cursors.order_by("pk")):
        yield from _Log(cursor, timedelta(days=days), using).purge()


class _Log:
    """The old deliveries of one group in one partition, to be deleted."""

    def __init__(self, cursor: Cursor, age: timedelta, using: str) -> None:
        self._cursor = cursor
        self._age = age
        self._using = using

    def purge(self) -> Iterator[int]:
        limit = retrying(finished_below, self._using, self._cursor, self._using)
        place = (-1, 0)
        while rows := retrying(self._rows, self._using, place):
            edge = limit if len(rows) < batches.BATCH else min(limit, rows[-1][1])
            for _pk, first, last, is_old in rows:
                if not is_old and last >= self._cursor.log_offset:
                    edge = min(edge, first)  # log_offset does not pass a delivery that is not old
                    break
            self._move_to(edge)
            kept_from = self._cursor.log_offset
            old = [pk for pk, _first, last, is_old in rows if is_old and last < kept_from]
            yield retrying(
                delete_rows, self._using, Delivery, old, self._using, "`state` <> 'START'"
            )
            if edge < rows[-1][1] or len(rows) < batches.BATCH:
                return
            # Deliveries that begin at the edge are read again: they may end above it.
            below = [row for row in rows if row[1] < edge] or rows
            place = (below[-1][1], below[-1][0])

    def _rows(self, after: tuple[int, int]) -> list[tuple[int, int, int, bool]]:
        """Return the next deliveries by first offset and id, and whether each is old enough."""
        offset, pk = after
        log = Delivery.objects.using(self._using).filter(
            group=self._cursor.group_id, partition=self._cursor.partition_id
        )
        rest = log.filter(first_offset__gte=offset).exclude(first_offset=offset, pk__lte=pk)
        rows = rest.annotate(
            ended=Coalesce("finished_at", "claimed_at"), limit=UtcNow(-self._age)
        ).order_by("first_offset", "pk")
        columns = ("pk", "first_offset", "last_offset", "state", "ended", "limit")
        some = rows.values_list(*columns)[: batches.BATCH]
        return [
            (row_pk, first, last, state != State.START and ended < limit)
            for row_pk, first, last, state, ended, limit in some
        ]

    def _move_to(self, offset: int) -> None:
        if offset <= self._cursor.log_offset:
            return
        mine = Cursor.objects.using(self._using).filter(
            Q(log_offset__lt=offset), pk=self._cursor.pk
        )
        retrying(lambda: mine.update(log_offset=offset), self._using)
        self._cursor.log_offset = offset


# Dead letters before deliveries: what became of a redriven letter is recorded in deliveries.
OLD_ROWS: dict[str, Callable[[str], Iterator[int]]] = {
    "dead letters": dead_letters,
    "edits of dead letters": edits,
    "redrives": redrives,
    "deliveries": deliveries,
    "replays": replays,
    "dedup keys": dedup_keys,
    "prepared messages": prepared_messages,
    "rate buckets": key_buckets,
}


def all_old_rows() -> dict[str, Callable[[str], Iterator[int]]]:
    """Return the steps of EMS, and those of other apps: ``ems_old_rows`` of their AppConfig."""
    steps = dict(OLD_ROWS)
    for config in apps.get_app_configs():
        if hasattr(config, "ems_old_rows"):
            steps |= config.ems_old_rows()
    return steps

"""Skips all that waits in a queue, as ``celery purge`` wants it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from streams.celery.naming import GROUP
from streams.consume.outcome.any_order import split
from streams.consume.registry import registration_of
from streams.consume.subscription import subscribe
from streams.database.batches import delete_all
from streams.database.retrying import retrying
from streams.database.sql.send import CANCELLABLE
from streams.database.transactions import own_transaction, short_lock_waits
from streams.log.sequencer import sequence
from streams.log.skips import give_up_retries, move_cursor
from streams.models import (
    IMMEDIATE,
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
    UtcNow,
)

TOLD = {"client_id": "celery purge", "error": "skipped by a purge of the queue"}
# Rows of one transaction; and for how many seconds it waits for a lock, since nothing is sequenced
# in the partition meanwhile.
STEP = 500
LOCK_SECONDS = 3
# After so many seconds the purge goes on with what is sequenced: another process may hold the rest.
SEQUENCED_SECONDS = 30.0


def purge(topics: Sequence[str], using: str) -> int:
    """Skip what waits in these topics for workers; return how many messages that is.

    Also what waits for its next attempt. What has an ETA is deleted. What a worker has goes on, and
    may come back. It may be interrupted, and run again.
    """
    number = 0
    for topic in Topic.objects.using(using).filter(name__in=topics):
        delayed = Message.objects.using(using).inbox().filter(partition__topic=topic.pk)
        delayed = delayed.filter(due_at__gt=IMMEDIATE).order_by("pk")
        number += sum(delete_all(delayed, using, CANCELLABLE))
        # A queue that no worker has read has no group: its first worker would begin at the start.
        group = subscribe(registration_of(topic.name, GROUP, start="earliest"), using)
        places = Partition.objects.using(using).filter(topic=topic.pk)
        ids = list(places.values_list("pk", flat=True))
        until = time.monotonic() + SEQUENCED_SECONDS
        while (pause := sequence(using, ids, until=until).goes_on_in) is not None:
            if time.monotonic() >= until:
                break
            time.sleep(pause)
        for pk, end in places.values_list("pk", "next_offset"):
            while skipped := retrying(_skip, using, group, pk, end, using):
                number += skipped
    return number


def _skip(group: ConsumerGroup, partition: int, end: int, using: str) -> int:
    """Skip some of what is below ``end``; return how many messages, 0 if there is nothing left."""
    of_group = {"group": group.pk, "partition": partition}
    with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
        # In this order, as a forced purge locks them. Nothing more is claimed meanwhile.
        list(Partition.objects.using(using).select_for_update().filter(pk=partition))
        cursor = Cursor.objects.using(using).select_for_update().get(**of_group, replay=0)
        back = Delivery.objects.using(using).given_back().exclude(kind=Kind.RETRY)
        back = back.filter(**of_group, first_offset__lt=end).order_by("pk")
        locked = back.select_for_update(skip_locked=True)[:STEP]
        parts = [part for one in locked for part in split(one)]
        Delivery.objects.using(using).filter(pk__in=[one.pk for one in parts]).update(
            state=State.SKIPPED, finished_at=UtcNow(), error=TOLD["error"]
        )
        # The message of a redriven one is a dead letter still.
        waiting = RetryMessage.objects.using(using).filter(**of_group, delivery=None)
        waiting = waiting.filter(dead_letter=None, offset__lt=end)
        rows = list(waiting.select_for_update(skip_locked=True)[:STEP])
        give_up_retries(rows, using, **TOLD)
        new = max(0, end - cursor.next_offset)
        if new:
            move_cursor(cursor, cursor.next_offset, end, UtcNow(), using, **TOLD)
    return new + len(rows) + sum(one.last_offset + 1 - one.progress for one in parts)

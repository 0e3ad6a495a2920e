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
from streams.database.transactions import own_transaction
from streams.log.sequencer import sequence
from streams.log.skips import move_cursor, write_skipped
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


def purge(topics: Sequence[str], using: str) -> int:
    """Skip what waits in these topics; return how many messages that is.

    Also what has an ETA, and what waits for its next attempt. What a worker has goes on, and may
    come back.
    """
    number = 0
    for topic in Topic.objects.using(using).filter(name__in=topics):
        delayed = Message.objects.using(using).inbox().filter(partition__topic=topic.pk)
        delayed = delayed.filter(due_at__gt=IMMEDIATE).order_by("pk")
        number += sum(delete_all(delayed, using, CANCELLABLE))
        # A queue that no worker has read has no group: its first worker would begin at the start.
        group = subscribe(registration_of(topic.name, GROUP, start="earliest"), using)
        partitions = list(Partition.objects.using(using).filter(topic=topic.pk))
        ids = [one.pk for one in partitions]
        while (pause := sequence(using, ids).goes_on_in) is not None:
            time.sleep(pause)
        number += sum(retrying(_skip, using, group, pk, using) for pk in ids)
    return number


def _skip(group: ConsumerGroup, partition: int, using: str) -> int:
    place = group.pk, partition
    of_group = {"group": group.pk, "partition": partition}
    with own_transaction(using):
        # In this order, as a forced purge locks them. Nothing more is claimed meanwhile.
        log = Partition.objects.using(using).select_for_update().get(pk=partition)
        cursor = Cursor.objects.using(using).select_for_update().get(**of_group, replay=0)
        back = Delivery.objects.using(using).given_back().filter(**of_group)
        locked = back.exclude(kind=Kind.RETRY).select_for_update(skip_locked=True)
        parts = [part for one in locked.order_by("pk") for part in split(one)]
        Delivery.objects.using(using).filter(pk__in=[one.pk for one in parts]).update(
            state=State.SKIPPED, finished_at=UtcNow(), error=TOLD["error"]
        )
        # The message of a redriven one is a dead letter still.
        waiting = RetryMessage.objects.using(using).filter(**of_group, delivery=None)
        rows = list(waiting.filter(dead_letter=None).select_for_update(skip_locked=True))
        for row in rows:
            told = {**TOLD, "attempt": row.attempt}
            offsets = range(row.offset, row.offset + 1)
            write_skipped(place, offsets, Kind.RETRY, UtcNow(), using, **told)
        RetryMessage.objects.using(using).filter(pk__in=[row.pk for row in rows]).delete()
        new = log.next_offset - cursor.next_offset
        move_cursor(cursor, cursor.next_offset, log.next_offset, UtcNow(), using, **TOLD)
    return new + len(rows) + sum(one.last_offset + 1 - one.progress for one in parts)

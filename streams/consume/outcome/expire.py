"""The end of a delivery whose client is dead or overdue."""

from __future__ import annotations

from datetime import timedelta

from streams.consume.outcome import backoff
from streams.consume.outcome.failure import Failure, ProcessDied
from streams.consume.outcome.settle import (
    give_back,
    holds_cursor,
    lock_cursor,
    unsettled,
    wait_for_retry,
    write_failures,
)
from streams.database.transactions import own_transaction
from streams.errors import describe
from streams.models import Delivery, Kind, State
from streams.models.consumer import LEASE, Consumer
from streams.models.cursor import Cursor
from streams.models.fields import UtcNow
from streams.models.retry import Again


def expire(delivery: Delivery, max_retries: int | None, delay: timedelta) -> bool:
    """Take the delivery from a dead or overdue client: what it has not settled is retried.

    Returns False if it ended in the meantime. A retry that was never started keeps its
    attempt; anything else has spent one, since it may be what killed the process. With
    ``max_retries=None`` nothing is judged: who claims it next knows how many there are.
    """
    died = ProcessDied()
    with own_transaction(delivery.using):
        # First, as everywhere: the cursor, then the delivery. Without a cursor it was reset.
        cursor = lock_cursor(delivery, skip_locked=True) if delivery.group.ordered else None
        if delivery.group.ordered and cursor is None and holds_cursor(delivery):
            return False
        expired = Delivery.objects.using(delivery.using).expired().filter(pk=delivery.pk)
        # A frozen process may hold the row: it must not keep the sweep from the others.
        row = expired.select_for_update(skip_locked=True).filter(progress=delivery.progress)
        if not list(row.values_list("pk")):
            return False
        # The token goes: with it the client could take this end for its own.
        Delivery.objects.using(delivery.using).filter(pk=delivery.pk).update(
            state=State.RETRY, token="", finished_at=UtcNow(), error=describe(died)
        )
        again = delivery.kind == Kind.RETRY or (cursor and delivery.attempt > 1)
        if again and delivery.started_at is None:
            give_back(delivery, cursor)
        elif cursor:
            _expire_in_order(delivery, cursor, max_retries, delay)
        elif max_retries is not None and backoff.exhausted(delivery.attempt, max_retries):
            failures = [Failure(offset, died) for offset in unsettled(delivery)]
            write_failures(delivery, failures, max_retries)
        else:
            # Of several, at most one was running: the rest would only keep the process from
            # its work. As retries of their own, the next crash shows which it was.
            suspect = len(unsettled(delivery)) == 1
            alone = suspect and not _client_is_live(delivery)
            wait_for_retry(
                delivery,
                [
                    Again(offset, delivery.attempt + 1, delay, describe(died), alone)
                    for offset in unsettled(delivery)
                ],
            )
    return True


def _expire_in_order(
    delivery: Delivery, cursor: Cursor, max_retries: int | None, delay: timedelta
) -> None:
    """The first message that is not settled spends an attempt; those after it wait."""
    attempt = delivery.attempt
    if max_retries is not None and backoff.exhausted(attempt, max_retries):
        write_failures(delivery, [Failure(delivery.progress, ProcessDied())], max_retries, cursor)
        return
    alone = len(unsettled(delivery)) == 1 and not _client_is_live(delivery)
    cursor.return_to(delivery.progress, attempt + 1, delay, alone=alone)


def _client_is_live(delivery: Delivery) -> bool:
    # A lease outlives its process: only a renewal after the deadline shows that the call, and
    # not the whole process, is what was overdue.
    clients = Consumer.objects.using(delivery.using).live()
    renewed = clients.filter(lease_until__gte=delivery.deadline + LEASE)
    return renewed.filter(client_id=delivery.client_id, group=delivery.group_id).exists()

"""Ends a delivery whose lease has expired: its client is dead or overdue."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q

from streams.consume.outcome import backoff
from streams.consume.outcome.failure import CallGivenUp, Failure, Judged, ProcessDied
from streams.consume.outcome.settle import (
    Settlement,
    give_back,
    holds_cursor,
    lock_cursor,
    unsettled,
    wait_for_retry,
    write_failures,
)
from streams.database.transactions import own_transaction
from streams.errors import describe
from streams.models import Delivery, Kind, State, Verdict
from streams.models.consumer import LEASE, Consumer
from streams.models.fields import UtcNow
from streams.models.retry import Again


def expire(
    delivery: Delivery,
    max_retries: int | None,
    delay: timedelta | None,
    *,
    given_up: bool = False,
) -> Settlement | None:
    """Take the delivery from a dead or overdue client: what it has not settled is retried.

    With ``given_up`` an operator takes it from a client that is neither.

    A retry that was never started keeps its attempt. Any other message has spent one, since it may
    be what killed the process. It comes back after ``delay``; None gives up. With
    ``max_retries=None`` attempts are not counted here: the process that claims it next knows the
    limit.

    Returns what followed, or None if the delivery ended in the meantime.
    """
    reason = CallGivenUp() if given_up else ProcessDied()
    last = delay is None or (
        max_retries is not None and backoff.exhausted(delivery.attempt, max_retries)
    )
    waits = delay or timedelta(0)
    with own_transaction(delivery.using):
        # EMS locks the cursor before the delivery everywhere; another order could deadlock. If
        # no cursor waits for this delivery, the group was reset.
        cursor = lock_cursor(delivery, skip_locked=True) if delivery.group.ordered else None
        if delivery.group.ordered and cursor is None and holds_cursor(delivery):
            return None
        rows = Delivery.objects.using(delivery.using)
        expired = (rows.held() if given_up else rows.expired()).filter(pk=delivery.pk)
        # A frozen process may hold the row's lock. It is skipped, so that the sweep can expire
        # the other deliveries.
        unchanged = {"progress": delivery.progress, "last_offset": delivery.last_offset}
        row = expired.select_for_update(skip_locked=True).filter(**unchanged)
        if not list(row.values_list("pk")):
            return None
        # The token is removed: with it, the client could take this end for its own.
        Delivery.objects.using(delivery.using).filter(pk=delivery.pk).update(
            state=State.RETRY, token="", finished_at=UtcNow(), error=describe(reason)
        )
        judged: list[Judged] = []
        if last:
            ends = [delivery.progress] if cursor else unsettled(delivery)
            judged = [_end(delivery, offset, reason) for offset in ends]
        settlement = Settlement([])
        again = delivery.kind == Kind.RETRY or (cursor and delivery.attempt > 1)
        if again and delivery.started_at is None:
            give_back(delivery, cursor)
        elif judged:
            settlement = Settlement(judged, write_failures(delivery, judged, cursor))
        elif cursor:
            # The first message that is not settled spends an attempt; those after it wait.
            alone = not given_up and _is_suspect(delivery)
            cursor.return_to(
                delivery.progress,
                delivery.attempt + 1,
                waits,
                alone=alone,
                error=describe(reason),
            )
        else:
            # They become separate retries, and the next death shows which one ends the process.
            alone = not given_up and _is_suspect(delivery)
            wait_for_retry(
                delivery,
                [
                    Again(offset, delivery.attempt + 1, waits, describe(reason), alone)
                    for offset in unsettled(delivery)
                ],
            )
    return settlement


def was_given_up(delivery: Delivery) -> bool:
    """Tell whether an operator has ended the delivery, whose lease is lost."""
    rows = Delivery.objects.using(delivery.using).filter(pk=delivery.pk)
    return rows.filter(state=State.RETRY, error=describe(CallGivenUp())).exists()


def _end(delivery: Delivery, offset: int, reason: Exception) -> Judged:
    failure = Failure(offset, reason)
    return Judged(failure, Verdict.of(failure.error, offset, delivery.attempt))


def _is_suspect(delivery: Delivery) -> bool:
    """Tell whether the message may be what ended its process: it is the second one in a row.

    One death proves nothing: a kill -9 takes along whatever runs. Of several unsettled messages at
    most one was running.
    """
    alone = len(unsettled(delivery)) == 1
    return alone and not _client_is_live(delivery) and _died_before(delivery)


def _died_before(delivery: Delivery) -> bool:
    """Tell whether the attempt before this one ended with its process, too."""
    place = delivery.group_id, delivery.partition_id, delivery.progress
    before = Delivery.objects.using(delivery.using).covering(*place).filter(pk__lt=delivery.pk)
    # What was given back was no attempt, and a later attempt without a start was none.
    attempts = before.filter(state__in=[State.DONE, State.RETRY]).exclude(
        Q(kind=Kind.RETRY) | Q(attempt__gt=1), started_at=None
    )
    # A message that its delivery had settled, as failed, did not end that process.
    rows = list(attempts.values_list("pk", "error", "progress"))
    if not rows:
        return False
    _last, error, progress = max(rows)
    return error == describe(ProcessDied()) and progress <= delivery.progress


def _client_is_live(delivery: Delivery) -> bool:
    # The client's lease lasts longer than its process. Only a renewal after the deadline of the
    # delivery shows that the process lives, and that only its call was overdue.
    clients = Consumer.objects.using(delivery.using).live()
    renewed = clients.filter(lease_until__gte=delivery.deadline + LEASE)
    return renewed.filter(client_id=delivery.client_id, group=delivery.group_id).exists()

"""Ends a delivery whose lease has expired: its client is dead or overdue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django.db.models import Q

from streams.consume.outcome import backoff
from streams.consume.outcome.any_order import split
from streams.consume.outcome.failure import CallGivenUp, Failure, Judged, ProcessDied
from streams.consume.outcome.parking import parking
from streams.consume.outcome.settle import (
    Settlement,
    give_back,
    holds_cursor,
    leave_range,
    lock_cursor,
    lock_cursors,
    unsettled,
    wait_for_retry,
    write_failures,
)
from streams.database.transactions import own_transaction
from streams.errors import LeaseLost, describe
from streams.models import Delivery, Kind, RetryMessage, State, Verdict
from streams.models.consumer import LEASE, Consumer, ConsumerQuerySet
from streams.models.delivery import DeliveryQuerySet
from streams.models.fields import UtcNow
from streams.models.retry import Again


def expire(
    delivery: Delivery,
    max_retries: int | None,
    delay: timedelta | None,
    *,
    dead: bool = False,
    given_up: bool = False,
) -> Settlement | None:
    """Take the delivery from a dead or overdue client: what it has not settled is retried.

    What keeps a record of its start, as a retry and a last attempt do, has spent its attempt if it
    was started, and only then it is given up. Any other message has spent one, since it may be what
    killed the process. It comes back at once the first time that its process has died, and after
    ``delay`` otherwise; None gives up. With ``max_retries=None`` attempts are not counted here: the
    process that claims it next knows the limit. With ``dead`` the process is known to be dead, and
    its lease need not have ended; with ``given_up`` an operator takes it from a client that lives.

    In a group by key a call that is known to have run becomes a row, and holds its key: with
    ``dead`` all that is not settled, else what was claimed alone.

    Returns what followed, or None if the delivery ended in the meantime.
    """
    if delivery.settled:
        return _expire_parts(delivery, max_retries, delay, dead=dead, given_up=given_up)
    reason = CallGivenUp() if given_up else ProcessDied()
    is_last = delay is None or (
        max_retries is not None and backoff.exhausted(delivery.attempt, max_retries)
    )
    unspent = delivery.counts_starts(is_last=is_last) and delivery.started_at is None
    by_itself = delivery.group.ordered or delivery.kind == Kind.RETRY
    ran = delivery.group.by_key and (dead or len(unsettled(delivery)) == 1)
    end = delivery.last_offset + 1
    with own_transaction(delivery.using):
        # EMS locks the cursor before the delivery everywhere; another order could deadlock. If
        # no cursor waits for this delivery, the group was reset.
        cursor = lock_cursor(delivery, skip_locked=True) if delivery.group.ordered else None
        if delivery.group.ordered and cursor is None and holds_cursor(delivery):
            return None
        if unspent and not by_itself:
            lock_cursors(delivery)
        rows = Delivery.objects.using(delivery.using)
        taken = rows.filter(pk=delivery.pk)
        expired = _taken_from(delivery, dead=dead, given_up=given_up)
        # A frozen process may hold the row's lock. It is skipped, so that the sweep can expire
        # the other deliveries.
        unchanged = {"progress": delivery.progress, "last_offset": delivery.last_offset}
        row = expired.select_for_update(skip_locked=True).filter(
            pk=delivery.pk, started_at__isnull=delivery.started_at is None, **unchanged
        )
        if not list(row.values_list("pk")):
            return None
        if unspent and not by_itself:
            leave_range(delivery, taken)
            return Settlement([])
        # The token is removed: with it, the client could take this end for its own.
        taken.update(state=State.RETRY, token="", finished_at=UtcNow(), error=describe(reason))
        settlement = Settlement([])
        if unspent:
            give_back(delivery, cursor)
        elif is_last:
            ends = [delivery.progress] if cursor and not ran else unsettled(delivery)
            judged = [_end(delivery, offset, reason) for offset in ends]
            plan = None
            if cursor and delivery.group.by_key:
                stop = end if ran else delivery.progress + 1
                plan = parking(delivery, stop, judged, _parked(delivery, stop), blocks=False)
                judged = list(plan.judged)
            settlement = Settlement(judged, write_failures(delivery, judged, cursor, plan))
        else:
            # One by one: the next death shows which one ends the process. In an ordered group the
            # first message that is not settled spends an attempt; those after it wait.
            first = _again(delivery, delay or timedelta(0), reason, dead=dead)
            if cursor and ran:
                failed = [
                    Judged(Failure(offset, reason), replace(first, offset=offset))
                    for offset in unsettled(delivery)
                ]
                plan = parking(delivery, end, failed, _parked(delivery, end), blocks=False)
                write_failures(delivery, plan.judged, cursor, plan)
            elif cursor:
                cursor.return_to(
                    first.offset, first.attempt, first.delay, alone=first.alone, error=first.error
                )
            else:
                again = [replace(first, offset=offset) for offset in unsettled(delivery)]
                wait_for_retry(delivery, again)
    return settlement


def _taken_from(delivery: Delivery, *, dead: bool, given_up: bool) -> DeliveryQuerySet:
    """Return the deliveries that may be taken from their holders, of which this must be one."""
    rows = Delivery.objects.using(delivery.using)
    return delivery.held() if dead else (rows.held() if given_up else rows.expired())


def _expire_parts(
    delivery: Delivery,
    max_retries: int | None,
    delay: timedelta | None,
    *,
    dead: bool,
    given_up: bool,
) -> Settlement | None:
    """Expire what is left of a delivery of which a part is settled, in any order."""
    try:
        parts = split(delivery, among=_taken_from(delivery, dead=dead, given_up=given_up))
    except LeaseLost:
        return None
    found = [expire(part, max_retries, delay, dead=dead, given_up=given_up) for part in parts]
    ended = [one for one in found if one is not None]
    judged = [judged for one in ended for judged in one.judged]
    return Settlement(judged, {offset for one in ended for offset in one.gone}) if ended else None


def was_given_up(delivery: Delivery) -> bool:
    """Tell whether an operator has ended the delivery, whose lease is lost."""
    rows = Delivery.objects.using(delivery.using).filter(pk=delivery.pk)
    return rows.filter(state=State.RETRY, error=describe(CallGivenUp())).exists()


def _parked(delivery: Delivery, stop: int) -> set[int]:
    return delivery.parks.keys() & range(delivery.progress, stop)


def _end(delivery: Delivery, offset: int, reason: Exception) -> Judged:
    failure = Failure(offset, reason)
    return Judged(failure, Verdict.of(failure.error, offset, delivery.attempt))


def _again(delivery: Delivery, delay: timedelta, reason: Exception, *, dead: bool) -> Again:
    """Return when and how the first message that is not settled comes back.

    One death proves nothing: a kill -9 takes along whatever runs. So it comes back at once, unless
    the call may still run. After the second one in a row the message may be what ended its process:
    it is a suspect, and runs alone. Of several unsettled messages at most one was running.
    """
    again = len(unsettled(delivery)) == 1 and _died_before(delivery) is not None
    return Again(
        delivery.progress,
        delivery.attempt + 1,
        delay if again or (_has_lease(delivery) and not dead) else timedelta(0),
        describe(reason),
        again and isinstance(reason, ProcessDied) and (dead or not _client_is_live(delivery)),
    )


def ended_uncalled(message: Delivery | RetryMessage, offset: int, using: str) -> bool:
    """Tell whether the last attempt at ``offset`` ended with its process before any call.

    ``message`` is a claim, which is not meant, or a row that waits.
    """
    before = Delivery.objects.using(using)
    if isinstance(message, Delivery):
        before = before.filter(pk__lt=message.pk)
    death = _death(before.covering(message.group_id, message.partition_id, offset), offset)
    return death is not None and death.started_at is None


def _died_before(delivery: Delivery) -> Delivery | None:
    """Return the attempt before this one if it ended with its process, too."""
    place = delivery.group_id, delivery.partition_id, delivery.progress
    before = Delivery.objects.using(delivery.using).covering(*place).filter(pk__lt=delivery.pk)
    return _death(before, delivery.progress)


def _death(deliveries: DeliveryQuerySet, offset: int) -> Delivery | None:
    """Return the last attempt among ``deliveries`` if its process died with ``offset``."""
    # What was given back was no attempt, and a later attempt without a start was none.
    attempts = deliveries.filter(state__in=[State.DONE, State.RETRY]).exclude(
        Q(kind=Kind.RETRY) | Q(attempt__gt=1), started_at=None
    )
    last = max(attempts, key=lambda row: row.pk, default=None)
    # A message that its delivery had settled, as failed, did not end that process.
    died = last and last.error == describe(ProcessDied()) and last.progress <= offset
    return last if died else None


def _client_is_live(delivery: Delivery) -> bool:
    # The client's lease lasts longer than its process. Only a renewal after the deadline of the
    # delivery shows that the process lives, and that only its call was overdue.
    return _leases(delivery).filter(lease_until__gte=delivery.deadline + LEASE).exists()


def _has_lease(delivery: Delivery) -> bool:
    return _leases(delivery).exists()


def _leases(delivery: Delivery) -> ConsumerQuerySet:
    clients = Consumer.objects.using(delivery.using).live()
    return clients.filter(client_id=delivery.client_id, group=delivery.group_id)

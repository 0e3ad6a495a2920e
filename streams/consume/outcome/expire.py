"""Ends a delivery whose lease has expired: its client is dead or overdue."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from django.db.models import F, Q

from streams.consume.outcome import backoff
from streams.consume.outcome.any_order import offsets_of, split
from streams.consume.outcome.failure import CallGivenUp, Failure, Judged, NotBegun, ProcessDied
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
    begun: Collection[int] | None = None,
    passed: Collection[int] = (),
) -> Settlement | None:
    """Take the delivery from a dead or overdue client: what it has not settled is retried.

    What keeps a record of its start, as a retry and a last attempt do, has spent its attempt if it
    was started, and only then it is given up. Any other message has spent one, since it may be what
    killed the process. It comes back at once the first time that its process has died, and after
    ``delay`` otherwise; None gives up. With ``max_retries=None`` attempts are not counted here: the
    process that claims it next knows the limit. With ``dead`` the process is known to be dead, and
    its lease need not have ended; with ``given_up`` an operator takes it from a client that lives.

    In a group by key a call that is known to have run becomes a row, and holds its key: with
    ``dead`` all that is not settled, else what was claimed alone. ``begun`` are the calls of a
    claim in lanes, also those that have ended, and ``passed`` what of it was not wanted, if its
    host knows that.

    Returns what followed, or None if the delivery ended in the meantime.
    """
    if delivery.group.ordered and (delivery.settled or begun is not None):
        return _expire_lanes(
            *(delivery, max_retries, delay, begun), dead=dead, given_up=given_up, passed=passed
        )
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
        taken = Delivery.objects.using(delivery.using).filter(pk=delivery.pk)
        if not _lock(delivery, dead=dead, given_up=given_up):
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
            known = len(unsettled(delivery)) == 1
            wait = delay or timedelta(0)
            first = _again(delivery, wait, reason, delivery.progress, dead=dead, known=known)
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


def _lock(delivery: Delivery, *, dead: bool, given_up: bool) -> bool:
    """Lock the delivery; return False if it may not be taken, or is not as it was read."""
    expired = _taken_from(delivery, dead=dead, given_up=given_up)
    # A frozen process may hold the row's lock. It is skipped, so that the sweep can expire the
    # other deliveries. What is settled of a dead one may be known from its process's file alone.
    names = ["progress", "last_offset", *([] if dead else ["settled"])]
    unchanged = {name: getattr(delivery, name) for name in names}
    row = expired.select_for_update(skip_locked=True).filter(
        pk=delivery.pk, started_at__isnull=delivery.started_at is None, **unchanged
    )
    return bool(list(row.values_list("pk")))


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


def _expire_lanes(
    delivery: Delivery,
    max_retries: int | None,
    delay: timedelta | None,
    begun: Collection[int] | None,
    *,
    dead: bool,
    given_up: bool,
    passed: Collection[int],
) -> Settlement | None:
    """Expire a claim in lanes: what is not settled before the last call waits in its key.

    If the calls are not known, those before the last one that is settled may have begun. The cursor
    goes on behind the last one: nothing that is done is claimed again.
    """
    reason = CallGivenUp() if given_up else ProcessDied()
    is_last = delay is None or (
        max_retries is not None and backoff.exhausted(delivery.attempt, max_retries)
    )
    # The start of a last attempt is on record. If max_retries was lowered meanwhile, there is none.
    spends = not delivery.counts_starts(is_last=is_last)
    first = delivery.first_offset
    done = {*range(first, delivery.progress), *offsets_of(delivery.settled or 0, first), *passed}
    stop = max([delivery.progress - 1, *(done if begun is None else begun)]) + 1
    parks = _parked(delivery, stop)
    judged: list[Judged] = []
    for offset in sorted(set(range(delivery.progress, stop)).difference(done, parks)):
        if not spends or (begun is not None and offset not in begun):
            waits = Failure(offset, NotBegun())
            judged.append(Judged(waits, Again(offset, delivery.attempt), postponed=True))
        elif is_last:
            judged.append(_end(delivery, offset, reason))
        else:
            known = begun is not None
            again = _again(delivery, delay or timedelta(0), reason, offset, dead=dead, known=known)
            judged.append(Judged(Failure(offset, reason), again))
    with own_transaction(delivery.using):
        cursor = lock_cursor(delivery, skip_locked=True)
        if cursor is None and holds_cursor(delivery):
            return None
        if not _lock(delivery, dead=dead, given_up=given_up):
            return None
        plan = parking(delivery, stop, judged, parks, blocks=False, passed=passed)
        spent = [one.failure.offset for one in plan.judged if not one.postponed]
        Delivery.objects.using(delivery.using).filter(pk=delivery.pk).update(
            state=State.RETRY,
            token="",
            finished_at=UtcNow(),
            error=describe(reason),
            errors=delivery.noted(dict.fromkeys(spent, describe(reason))),
            failed=F("failed") + len(spent),
            passed=F("passed") + len([at for at in passed if delivery.progress <= at < stop]),
            progress=stop,
            last_offset=stop - 1,
        )
        gone = write_failures(delivery, plan.judged, cursor, plan)
    return Settlement(plan.judged, gone)


def was_given_up(delivery: Delivery) -> bool:
    """Tell whether an operator has ended the delivery, whose lease is lost."""
    rows = Delivery.objects.using(delivery.using).filter(pk=delivery.pk)
    return rows.filter(state=State.RETRY, error=describe(CallGivenUp())).exists()


def _parked(delivery: Delivery, stop: int) -> set[int]:
    return delivery.parks.keys() & range(delivery.progress, stop)


def _end(delivery: Delivery, offset: int, reason: Exception) -> Judged:
    failure = Failure(offset, reason)
    return Judged(failure, Verdict.of(failure.error, offset, delivery.attempt))


def _again(
    delivery: Delivery,
    delay: timedelta,
    reason: Exception,
    offset: int,
    *,
    dead: bool,
    known: bool,
) -> Again:
    """Return when and how the message at ``offset`` comes back; ``known``: it is one that ran.

    One death proves nothing: a kill -9 takes along whatever runs. So it comes back at once, unless
    the call may still run. After the second one in a row the message may be what ended its process:
    it is a suspect, and runs alone. Of several unsettled messages at most one was running, or with
    lanes a few.
    """
    again = known and _died_before(delivery, offset) is not None
    return Again(
        offset,
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


def _died_before(delivery: Delivery, offset: int) -> Delivery | None:
    """Return the attempt before this one if it ended with its process, too."""
    place = delivery.group_id, delivery.partition_id, offset
    before = Delivery.objects.using(delivery.using).covering(*place).filter(pk__lt=delivery.pk)
    return _death(before, offset)


def _death(deliveries: DeliveryQuerySet, offset: int) -> Delivery | None:
    """Return the last attempt among ``deliveries`` if its process died with ``offset``."""
    # What was given back was no attempt, and a later attempt without a start was none.
    attempts = deliveries.filter(state__in=[State.DONE, State.RETRY]).exclude(
        Q(kind=Kind.RETRY) | Q(attempt__gt=1), started_at=None
    )
    last = max(attempts, key=lambda row: row.pk, default=None)
    if last is None or last.error != (death := describe(ProcessDied())):
        return None
    # A message that its delivery had settled, as failed, did not end that process. Of a claim in
    # lanes all is settled, and those that ran are noted.
    return last if last.progress <= offset or last.failures().get(offset) == death else None


def _client_is_live(delivery: Delivery) -> bool:
    # The client's lease lasts longer than its process. Only a renewal after the deadline of the
    # delivery shows that the process lives, and that only its call was overdue.
    return _leases(delivery).filter(lease_until__gte=delivery.deadline + LEASE).exists()


def _has_lease(delivery: Delivery) -> bool:
    return _leases(delivery).exists()


def _leases(delivery: Delivery) -> ConsumerQuerySet:
    clients = Consumer.objects.using(delivery.using).live()
    return clients.filter(client_id=delivery.client_id, group=delivery.group_id)

"""Records the outcome of a delivery: settles what was handled and releases what was not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connections, models
from django.db.models import Case, F, When

from streams.consume.outcome.any_order import split
from streams.consume.outcome.backoff import RetryPolicy, default_policy
from streams.consume.outcome.failure import Failure, Judged, judge
from streams.consume.outcome.parking import Parking, parking
from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import execute, later
from streams.database.transactions import own_transaction
from streams.errors import LeaseLost, describe
from streams.log.held_keys import GroupPartition, LockedKey, end_head, lock
from streams.models import Delivery, Kind, State
from streams.models.cursor import Cursor
from streams.models.dead import DeadMessage, Verdict
from streams.models.fields import UtcNow
from streams.models.retry import MAX_ERROR, Again, RetryMessage, RetryMessageQuerySet
from streams.telemetry import RELEASE, SETTLE, observed


@dataclass
class Settlement:
    """What followed from the failures that were settled."""

    judged: Sequence[Judged]
    gone: set[int] = field(default_factory=set)  # offsets whose messages have been purged
    by_another: bool = False  # another call, with the same token, had recorded it before
    parked: frozenset[int] = frozenset()  # offsets that wait for a message of their key

    @property
    def dead(self) -> list[Judged]:
        return [one for one in self.judged if one.verdict and one.failure.offset not in self.gone]


@observed(SETTLE)
def settle(
    delivery: Delivery,
    progress: int,
    failures: Sequence[Failure] = (),
    *,
    max_retries: int,
    retry: RetryPolicy | None = None,
    missing: int = 0,
    passed: Collection[int] = (),
    parks: Collection[int] = (),
    blocks: bool = True,
    running: timedelta = timedelta(0),
) -> Settlement:
    """Record the outcome of all offsets below ``progress``; past the last one, the delivery ends.

    ``running`` is how long ago the first handler call began. Progress passes a failed offset
    only in the transaction that writes its retry or dead row, so a crash between two
    statements loses nothing. In an ordered group a failure ends the delivery at progress. If it
    ``blocks``, the cursor goes back to it: it is that of the last offset below progress. Of a group
    by key, ``parks`` are the offsets that wait for their key and were not handed over; other
    failures hold their keys, also for what comes behind them, but not for the offsets ``passed``,
    which the group does not want. ``retry`` is the policy of the group, by default
    ``EMS["RETRY_DELAYS"]``.

    Returns what followed from the failures. Raises LeaseLost.
    """
    policy = default_policy() if retry is None else retry
    settlement = Settlement([judge(f, delivery.attempt, max_retries, policy) for f in failures])
    ordered = delivery.group.ordered
    in_turn = ordered and delivery.kind != Kind.RETRY  # no cursor waits for a retry
    plan: Parking | None = None
    if in_turn and delivery.group.by_key:
        plan = parking(delivery, progress, settlement.judged, parks, blocks=blocks, passed=passed)
        settlement.judged, settlement.parked = plan.judged, plan.parks
        failures = [one.failure for one in plan.judged]
    last_offset = progress - 1 if ordered and failures else delivery.last_offset
    ends = progress > last_offset
    state = State.START
    if ends:
        # What is parked comes again, as what has failed.
        waits = delivery.parked or delivery.postponed or (plan and plan.parks)
        comes_again = failures or delivery.failed or waits
        state = State.RETRY if comes_again else State.DONE
    vendor = connections[delivery.using].vendor
    failed = [one.failure for one in settlement.judged if not one.postponed]
    delivery.postponed = delivery.postponed or len(failed) < len(failures)
    told = {failure.offset: describe(failure.error) for failure in failed}
    # What blocks a cursor is the last one. If nothing has failed, it says why it comes again.
    last = failures[-1:] if blocks else failed[-1:] or failures[-1:]
    errors = delivery.noted(told) if told else None
    parameters = (
        progress,
        last_offset,
        state.value,
        len(failed),
        missing,
        len(passed),
        describe(last[0].error) if last else None,
        errors,
        # While it is open, a start says that a death may have been of any of its messages.
        later(vendor, -running) if ends else None,
        ends,
        delivery.pk,
        delivery.token,
        delivery.progress,
        delivery.last_offset,
    )

    tried = False

    def update() -> bool:
        nonlocal tried
        first, tried = not tried, True
        if execute(delivery.using, sql.SETTLE_DELIVERY[vendor], parameters):
            return True
        settlement.by_another = first
        return _written_before(delivery, progress=progress, state=state)

    def write() -> None:
        parks = plan is not None and not plan.is_empty
        if not (failures or parks or delivery.kind == Kind.RETRY or (ordered and ends)):
            update()
            return
        with own_transaction(delivery.using):
            cursor = lock_cursor(delivery) if in_turn else None
            if update():
                ended = cursor if ends else None
                settlement.gone = write_failures(delivery, settlement.judged, ended, plan)

    retrying(write, delivery.using)
    delivery.progress, delivery.last_offset = progress, last_offset
    delivery.errors = errors or delivery.errors
    delivery.failed += len(failed)
    delivery.missing += missing
    return settlement


@observed(RELEASE)
def release(delivery: Delivery, *, thread: str | None = None) -> None:
    """Give back what has not been handed to the handler, with its attempt unspent.

    New messages stay together: see _give_back_range. With ``thread``, nothing is given back unless
    the row has this one still. Of one that is settled in any order, what is settled stays so; of
    one in lanes all is settled before its progress. Raises LeaseLost.
    """
    if delivery.settled and not delivery.group.ordered:
        for part in split(delivery):
            release(part, thread=thread)
        return
    unchanged: dict[str, Any] = {
        "progress": delivery.progress,
        "last_offset": delivery.last_offset,
    }
    if thread is not None:
        unchanged["thread"] = thread

    def write() -> None:
        with own_transaction(delivery.using):
            in_turn = delivery.group.ordered and delivery.kind != Kind.RETRY
            cursor = lock_cursor(delivery) if in_turn else None
            held = delivery.held().filter(**unchanged)
            released = held.update(state=State.RELEASED, finished_at=UtcNow())
            if released or _written_before(delivery, state=State.RELEASED):
                give_back(delivery, cursor)

    if delivery.kind == Kind.RETRY or delivery.group.ordered:
        retrying(write, delivery.using)
    else:
        tried: list[Delivery] = []
        retrying(_give_back_range, delivery.using, delivery, tried, unchanged)


def _give_back_range(
    delivery: Delivery, tried: list[Delivery], unchanged: Mapping[str, Any]
) -> None:
    """Leave the rest of the delivery as an open range without a holder, for one claim to take.

    As single retries, the messages of a batch would come back one by one. The delivery ends with
    what it has settled, so that every offset is covered once. ``tried`` has an earlier try, whose
    reply was lost: if the delivery is not held any more, that one has given it back.
    """
    with own_transaction(delivery.using):
        # A reset locks the cursor, and then revokes the open deliveries that it has seen. With this
        # lock it sees the range, too.
        lock_cursors(delivery)
        if not leave_range(delivery, delivery.held().filter(**unchanged)) and not tried:
            raise LeaseLost
        tried.append(delivery)


def lock_cursors(delivery: Delivery) -> None:
    """Lock the cursor of the log, in whose order the ranges of a shared group are changed."""
    place = {"group_id": delivery.group_id, "partition_id": delivery.partition_id}
    cursors = Cursor.objects.using(delivery.using).filter(**place, replay=0)
    list(cursors.select_for_update().values_list("pk"))


def leave_range(delivery: Delivery, held: models.QuerySet[Delivery]) -> bool:
    """Leave what is not settled as an open range; return False if ``held`` has no row.

    The caller has the lock of the cursor, see _give_back_range.
    """
    first = delivery.progress
    if first == delivery.first_offset:
        return bool(held.update(**_waiting()))
    ended = {"state": State.RELEASED, "last_offset": first - 1, "finished_at": UtcNow()}
    if not held.update(**ended):
        return False
    _write_range(delivery, first)
    return True


def _waiting() -> dict[str, Any]:
    # If the one call had begun, what it needs was away: it counts as not begun.
    return {"token": "", "deadline": UtcNow(), "thread": "", "started_at": None}


def _write_range(delivery: Delivery, first: int) -> None:
    """Write the offsets of the delivery from ``first`` on as an open range without a holder."""
    Delivery.objects.using(delivery.using).create(
        group_id=delivery.group_id,
        partition_id=delivery.partition_id,
        first_offset=first,
        last_offset=delivery.last_offset,
        progress=first,
        kind=delivery.kind,
        attempt=delivery.attempt,
        client_id=delivery.client_id,
        **_waiting(),
    )


def keep_below(delivery: Delivery, end: int, *, waits: bool = True) -> bool:
    """Give back what the delivery holds from the offset ``end`` on, and keep the rest of it.

    ``end`` is above its progress. In an ordered group the cursor goes back to it. Unless it
    ``waits``, nothing is done while others have the cursor or the delivery locked; then it returns
    False. Raises LeaseLost.
    """
    last = delivery.last_offset
    tried = False

    def write() -> bool:
        nonlocal tried
        skips = not (waits or tried)  # after a reply that was lost, the outcome must be known
        with own_transaction(delivery.using):
            cursors = Cursor.objects.using(delivery.using)
            if delivery.group.ordered:
                cursors = cursors.filter(open_delivery=delivery.pk)
            else:
                cursors = cursors.filter(replay=0)
            place = cursors.filter(group=delivery.group_id, partition=delivery.partition_id)
            locked = list(place.select_for_update(skip_locked=skips).values_list("pk"))
            if skips and not (locked and lock_held(delivery)):
                return False
            tried = True
            if not delivery.held().filter(last_offset=last).update(last_offset=end - 1):
                _written_before(delivery, last_offset=end - 1, state=State.START)
            elif delivery.group.ordered:
                place.update(next_offset=end)
            else:
                _write_range(delivery, end)
        return True

    if done := retrying(write, delivery.using):
        delivery.last_offset = end - 1
    return done


def lock_held(delivery: Delivery) -> bool:
    """Lock the delivery; return False if others have it locked, or it is not held any more."""
    return bool(delivery.held().select_for_update(skip_locked=True).values_list("pk"))


def lock_cursor(delivery: Delivery, *, skip_locked: bool = False) -> Cursor | None:
    """Lock and return the cursor that the delivery holds; None if an ordered group was reset.

    With ``skip_locked`` it waits for nobody: None, too, while others have a lock in the way.
    """
    if delivery.group.by_key and delivery.kind == Kind.REPLAY:
        # What it holds is said on all cursors of the place, which are locked in this order.
        place = {"group": delivery.group_id, "partition": delivery.partition_id}
        rows = Cursor.objects.using(delivery.using).filter(**place).order_by("replay")
        locked = list(rows.select_for_update(skip_locked=skip_locked).values_list("pk"))
        if skip_locked and len(locked) < rows.count():
            return None
    held = _held_cursor(delivery).select_for_update(skip_locked=skip_locked)
    return held.first()


def _held_cursor(delivery: Delivery) -> models.QuerySet[Cursor]:
    place = {"group": delivery.group_id, "partition": delivery.partition_id}
    return Cursor.objects.using(delivery.using).filter(**place, open_delivery=delivery.pk)


def holds_cursor(delivery: Delivery) -> bool:
    """Tell whether a cursor of an ordered group waits for the end of the delivery."""
    return _held_cursor(delivery).exists()


def _written_before(delivery: Delivery, **values: Any) -> bool:
    """Return False if an earlier try, whose reply was lost, has written ``values``.

    Raises LeaseLost otherwise. Only the holder of the token moves progress, and an update waits
    for the transaction whose outcome is unknown; so a row with this token and these values was
    written by that try.
    """
    row = Delivery.objects.using(delivery.using).filter(pk=delivery.pk, token=delivery.token)
    if row.filter(**values).exists():
        return False
    raise LeaseLost


def unsettled(delivery: Delivery) -> range:
    """Return the offsets whose outcome is not recorded yet."""
    return range(delivery.progress, delivery.last_offset + 1)


def _own_retry(delivery: Delivery) -> RetryMessageQuerySet:
    """Return a query of the retry row that this delivery holds; empty if it is not a retry."""
    place = {"group": delivery.group_id, "partition": delivery.partition_id}
    return RetryMessage.objects.using(delivery.using).filter(
        **place, offset=delivery.first_offset, delivery=delivery.pk
    )


def write_failures(
    delivery: Delivery,
    judged: Sequence[Judged],
    cursor: Cursor | None = None,
    plan: Parking | None = None,
) -> set[int]:
    """Write the rows of the failed offsets, and end the retry row of a successful one.

    ``cursor`` is that of an ordered group: it moves on, or back to the failed offset. ``plan`` is
    that of a group by key, unless it is a retry. Returns the offsets that could not become dead
    letters: their messages have been purged meanwhile.
    """
    verdicts = [one.verdict for one in judged if one.verdict]
    gone = {verdict.offset for verdict in verdicts if not _bury(delivery, verdict)}
    if verdicts:
        # Without its body, purged meanwhile, a message cannot become a dead letter: it counts
        # as missing.
        Delivery.objects.using(delivery.using).filter(pk=delivery.pk).update(
            dead=F("dead") + len(verdicts) - len(gone), missing=F("missing") + len(gone)
        )
    waiting = [one.again for one in judged if one.again]
    if plan:
        plan.write(delivery, cursor)
    elif cursor:
        for again in waiting:
            cursor.return_to(again.offset, again.attempt, again.delay, error=again.error)
        for verdict in verdicts:
            cursor.return_to(verdict.offset + 1)
        if not judged:
            cursor.return_to(delivery.last_offset + 1)
    elif waiting:
        wait_for_retry(delivery, waiting)
    elif delivery.kind == Kind.RETRY:
        # The row is locked before its `again` is read. With `again` in the WHERE instead, READ
        # COMMITTED would unlock a row that does not match, and the DELETE would lose a redrive
        # that was written in between.
        key = _lock_key(delivery) if delivery.group.by_key else None
        held = _own_retry(delivery).select_for_update().values_list("again", flat=True)
        if any(list(held)):
            _own_retry(delivery).update(delivery=None, again=False, due_at=UtcNow())
        else:
            _own_retry(delivery).delete()
            if key:
                holds = delivery.group.hold_dead and bool(verdicts) and not gone
                end_head(*key, delivery.using, holds=holds)
    return gone


def _lock_key(delivery: Delivery) -> tuple[GroupPartition, int, LockedKey] | None:
    """Lock the key that the message of a retry holds; return None if it holds none."""
    place = GroupPartition(delivery.group_id, delivery.partition_id)
    for key in _own_retry(delivery).values_list("key_hash", flat=True):
        for locked in lock(place, [key] if key is not None else [], delivery.using).values():
            if key is not None and locked.head == delivery.first_offset:
                return place, key, locked
    return None


def give_back(delivery: Delivery, cursor: Cursor | None = None) -> None:
    """Let a retry, or what an ordered group has claimed, wait again with its attempt unspent."""
    if cursor:
        attempt = delivery.attempt
        cursor.return_to(delivery.progress, attempt, alone=cursor.alone and attempt > 1)
    else:
        _own_retry(delivery).update(delivery=None, due_at=UtcNow(), again=False)


def wait_for_retry(delivery: Delivery, rows: Sequence[Again]) -> None:
    """Write a retry row for each of ``rows``; if the delivery is a retry, change its own row."""
    if delivery.kind != Kind.RETRY:
        RetryMessage.objects.using(delivery.using).schedule(
            delivery.group_id, delivery.partition_id, rows
        )
        return
    (row,) = rows
    _own_retry(delivery).update(
        delivery=None,
        attempt=row.attempt,
        due_at=Case(When(again=True, then=UtcNow()), default=UtcNow(row.delay)),
        again=False,
        alone=row.alone,
        last_error=row.error[:MAX_ERROR],
    )


def _bury(delivery: Delivery, verdict: Verdict) -> bool:
    letters = DeadMessage.objects.using(delivery.using)
    redriven = _own_retry(delivery).exclude(dead_letter=None).values_list("dead_letter", flat=True)
    # The log does not have what was handled if that was edited. Where `again` is set, somebody has
    # named another letter since this delivery has read its own.
    edited = list(redriven.filter(again=False)) if delivery.kind == Kind.RETRY else []
    if edited and letters.filter(pk__in=edited).edited().reopen(verdict):
        return True
    if letters.bury(delivery.group.topic_id, delivery.group_id, delivery.partition_id, verdict):
        return True
    # The message has been purged meanwhile. If it was redriven, its dead letter still has the
    # body, and waits for an operator again.
    return bool(letters.filter(pk__in=list(redriven)).reopen(verdict))

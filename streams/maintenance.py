"""Time-driven steps, each bounded and safe to run twice or at the same time."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta

from django.db import Error, OperationalError
from django.db.models import F
from django.db.models.functions import Greatest
from django.utils import timezone

from streams.claims import groups_with_due_retries
from streams.conf import LEASE_SECONDS, settings
from streams.consume.outcome import backoff
from streams.consume.outcome.dead_letter import give_up
from streams.consume.outcome.expire import expire
from streams.consume.outcome.failure import AttemptsExhausted
from streams.database.retrying import held_by_others, retrying
from streams.models import Consumer, ConsumerGroup, Delivery, RetryMessage, Step, UtcNow
from streams.models.consumer import LEASE
from streams.models.step import PURGE, RETRIES, SEQUENCE, SWEEP
from streams.purge import Purge
from streams.sequencer import sequence
from streams.subscriptions import known_max_retries
from streams.transactions import own_transaction, short_lock_waits
from streams.wakeup import announce

logger = logging.getLogger("streams.maintenance")

# Who purges has this row until a slice has ended, or was killed so long ago, in seconds.
PURGE_SLICE = "purge slice"
SLICE_GRACE = 60.0
SWEEP_EVERY = timedelta(seconds=5)
RETRIES_EVERY = timedelta(seconds=1)
# The purge is due once a day, from this hour on, in the project's TIME_ZONE.
PURGE_HOUR = 3
DAY = timedelta(days=1)
# How often a sequencer notes that it is at work, for those who watch.
NOTE_EVERY = timedelta(seconds=5)
# A locked row keeps the sweep from the other deliveries for so long.
LOCK_WAIT_SECONDS = 2
# Deliveries and retries of one run; what is left is for the next.
BATCH = 500
# Passes of one run: a task has an end even while the inbox fills faster than it is emptied.
PASSES = 20


def sequence_all(using: str) -> int:
    """Move the inbox into the log and wake the consumers; returns the messages sequenced."""
    total = 0
    for _ in range(PASSES):
        done = sequence(using)
        total += done.sequenced
        if not done.more:
            break
    note_sequencing(using)
    if total:
        announce(using)
    return total


def note_sequencing(using: str) -> None:
    retrying(lambda: Step.objects.using(using).win(SEQUENCE, NOTE_EVERY), using)


def step_retries(using: str) -> int:
    """Wake the consumers for retries that are due; bury those that have no attempt left.

    Returns the number of dead letters written.
    """
    every = ConsumerGroup.objects.using(using).select_related("topic")
    groups = retrying(lambda: {group.pk: group for group in every}, using)
    due = groups_with_due_retries(list(groups), using)
    buried = sum(_bury_exhausted(groups[group], using) for group in due)
    if due:
        announce(using)
    return buried


def _bury_exhausted(group: ConsumerGroup, using: str) -> int:
    max_retries = known_max_retries(group, using)
    if max_retries is None:
        return 0
    due = RetryMessage.objects.using(using).due().filter(group=group.pk).order_by("due_at")
    rows = retrying(lambda: list(due[:BATCH]), using)
    buried = 0
    for row in rows:
        if backoff.exhausted(row.attempt - 1, max_retries):
            row.group = group
            spent = AttemptsExhausted(row.last_error)
            buried += retrying(lambda r=row, e=spent: give_up(r, e), using)  # type: ignore[misc]
    return buried


def step_retries_if_due(using: str) -> int:
    """Run it unless somebody has in the last RETRIES_EVERY."""
    won = retrying(lambda: Step.objects.using(using).win(RETRIES, RETRIES_EVERY), using)
    return step_retries(using) if won else 0


def sweep_if_due(using: str) -> int:
    """Run the sweep unless somebody has in the last SWEEP_EVERY; returns deliveries expired."""

    def win() -> bool:
        steps = Step.objects.using(using)
        if not steps.filter(name=SWEEP, last_run_at__lt=UtcNow(-LEASE)).exists():
            return steps.win(SWEEP, SWEEP_EVERY)
        # One transaction: nobody can end the outage without having given the grace.
        with own_transaction(using):
            if steps.win(SWEEP, SWEEP_EVERY):
                _grace(using)
        return False

    if not retrying(win, using):
        return 0
    started = time.monotonic()
    taken = sweep(using)
    if time.monotonic() - started > SWEEP_EVERY.total_seconds():
        # It was long, and no outage: nobody is owed a grace for it.
        retrying(
            lambda: Step.objects.using(using).filter(name=SWEEP).update(last_run_at=UtcNow()), using
        )
    return taken


def sweep(using: str) -> int:
    """Turn expired deliveries, one a transaction, into retries; forget dead clients.

    Returns the number of deliveries that were taken.
    """
    # The first step of the ladder: 10 s unless the project has another one.
    delay = timedelta(seconds=settings().RETRY_DELAYS[0])
    expired = Delivery.objects.using(using).expired().select_related("group__topic")
    rows = retrying(lambda: list(expired.order_by("deadline")[:BATCH]), using)
    taken = 0
    with short_lock_waits(using, LOCK_WAIT_SECONDS) if rows else nullcontext():
        for delivery in rows:
            if _expire(delivery, known_max_retries(delivery.group, using), delay, using):
                taken += 1
                logger.warning(
                    "Delivery %d of %s (client %s) has expired: its messages will be retried",
                    delivery.pk,
                    delivery.group,
                    delivery.client_id,
                )
    _forget_dead_clients(using)
    return taken


def _expire(delivery: Delivery, max_retries: int | None, delay: timedelta, using: str) -> bool:
    """Expire one; False if it has ended, or if somebody holds what that would write."""

    def work() -> bool:
        return expire(delivery, max_retries, delay)

    try:
        return retrying(work, using, patience=LOCK_WAIT_SECONDS)
    except OperationalError as error:
        if not held_by_others(error, using):
            raise
        logger.warning("Delivery %d has expired, but its rows are locked: %s", delivery.pk, error)
        return False


# Where the next slice goes on in this process, by alias.
_purged: dict[str, int] = {}


def purge_if_due(using: str, seconds: float) -> bool:
    """Purge for so long, unless that was finished since the last night; whether there is more.

    Then the next call goes on, wherever it is made; also after a kill or an error.
    """
    if not retrying(lambda: _purge_is_due(using), using):
        return False
    lease = timedelta(seconds=seconds + SLICE_GRACE)
    if not retrying(lambda: Step.objects.using(using).win(PURGE_SLICE, lease), using):
        return False
    try:
        # Whoever had the slice before may have finished meanwhile.
        return retrying(lambda: _purge_is_due(using), using) and _purge_slice(using, seconds)
    finally:
        with suppress(Error):  # then it is free after the lease
            Step.objects.using(using).filter(name=PURGE_SLICE).delete()


def _purge_slice(using: str, seconds: float) -> bool:
    work = Purge(using, seconds=seconds, after=_purged.pop(using, 0))
    work.run()
    if work.finished:
        work.expire()
    if not work.finished:
        _purged[using] = work.after
        return True
    if not work.failed:
        note_purge(using)
    return False


def note_purge(using: str) -> None:
    """All has been purged: the next time is the next night."""
    steps, now = Step.objects.using(using), {"last_run_at": UtcNow()}
    retrying(lambda: steps.update_or_create(name=PURGE, defaults=now), using)


def _purge_is_due(using: str) -> bool:
    steps = Step.objects.using(using).filter(name=PURGE)
    row = steps.annotate(now=UtcNow()).values_list("now", "last_run_at").first()
    if row is None:
        # Of a new installation there is nothing to purge before the next night.
        Step.objects.using(using).get_or_create(name=PURGE, defaults={"last_run_at": UtcNow()})
        return False
    now, last = row
    # In the future: the clock was set back.
    return last < _last_night(now) or last > now + DAY


def _last_night(now: datetime) -> datetime:
    """The last time that it was PURGE_HOUR."""
    local = now.astimezone(timezone.get_default_timezone())
    night = local.replace(hour=PURGE_HOUR, minute=0, second=0, microsecond=0)
    return night if night <= local else night - DAY


def _grace(using: str) -> None:
    """Nobody has swept for longer than a lease: the database was away, not its clients.

    So everyone who could have renewed gets one lease to do it before anything expires.
    """
    logger.warning("First sweep after an outage: all leases are extended by %d s", LEASE_SECONDS)
    Consumer.objects.using(using).update(lease_until=Greatest(F("lease_until"), UtcNow(LEASE)))
    Delivery.objects.using(using).open().update(deadline=Greatest(F("deadline"), UtcNow(LEASE)))


def _forget_dead_clients(using: str) -> None:
    dead = Consumer.objects.using(using).filter(lease_until__lt=UtcNow(-LEASE))
    retrying(dead.delete, using)

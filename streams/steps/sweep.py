"""Runs the step that takes deliveries with an expired lease from dead clients and hung calls."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from django.db import OperationalError
from django.db.models import F, QuerySet
from django.db.models.functions import Greatest

from streams.conf import LEASE_SECONDS
from streams.consume.limits import delay_after_expiry, known_max_retries
from streams.consume.outcome import notices
from streams.consume.outcome.expire import expire
from streams.consume.outcome.flood import flood
from streams.consume.outcome.settle import Settlement
from streams.database.retrying import held_by_others, retrying
from streams.database.sql.dialect import LIST
from streams.database.transactions import own_transaction, short_lock_waits
from streams.log.foreign import own_rows
from streams.log.held_keys import repair_stuck
from streams.logs import event
from streams.models import Consumer, Delivery, Step, UtcNow
from streams.models.consumer import LEASE
from streams.models.step import SWEEP
from streams.steps.time_limit import TimeLimit

logger = logging.getLogger("streams.maintenance")

SWEEP_EVERY = timedelta(seconds=5)
# Seconds that the sweep waits for a locked row before it goes on with the other deliveries.
LOCK_WAIT_SECONDS = 2
# After a shorter silence, as when the only consumer is started again, leases are extended, and
# nothing is said of it.
OUTAGE = timedelta(minutes=1)
# The most deliveries of one run; the next run goes on.
BATCH = 500


def sweep_if_due(using: str) -> int:
    """Run the sweep unless any process has in the last SWEEP_EVERY; return deliveries expired."""

    def win() -> bool:
        steps = Step.objects.using(using)
        if not steps.filter(name=SWEEP, last_run_at__lt=UtcNow(-LEASE)).exists():
            return steps.win(SWEEP, SWEEP_EVERY)
        # One transaction: no process can record a sweep after an outage without extending leases.
        with own_transaction(using):
            was_outage = steps.filter(name=SWEEP, last_run_at__lt=UtcNow(-OUTAGE)).exists()
            if steps.win(SWEEP, SWEEP_EVERY):
                _grace(using, was_outage=was_outage)
        return False

    if not retrying(win, using):
        return 0
    started = time.monotonic()
    taken = sweep(using)
    if time.monotonic() - started > SWEEP_EVERY.total_seconds():
        # This sweep took long, but was no outage. So it ends now, and leases are not extended.
        retrying(
            lambda: Step.objects.using(using).filter(name=SWEEP).update(last_run_at=UtcNow()), using
        )
    return taken


def sweep(using: str) -> int:
    """Turn expired deliveries into retries, each in a transaction; delete dead clients.

    Returns the number of deliveries that were expired.
    """
    expired = own_rows(Delivery.objects.using(using).expired(), using)
    expired = expired.select_related("group__topic", "partition")
    rows = retrying(list, using, expired.order_by("deadline")[:BATCH])
    taken, limit = 0, TimeLimit(SWEEP, using)
    with short_lock_waits(using, LOCK_WAIT_SECONDS) if rows else nullcontext():
        for delivery in rows:
            if taken and limit.over:
                limit.say()
                break
            settlement = _expire(delivery, using)
            if settlement is None:
                continue
            taken += 1
            logger.warning(
                "Delivery %d of %s (client %s) has expired: its messages will be retried",
                delivery.pk,
                delivery.group,
                delivery.client_id,
                extra=event(
                    "delivery.expired",
                    topic=delivery.group.topic.name,
                    group=delivery.group.name,
                    partition=delivery.partition.number,
                    offset=delivery.progress,
                    delivery=delivery.pk,
                    client=delivery.client_id,
                ),
            )
            notices.expired(delivery, settlement)
    repair_stuck(using, BATCH)
    flood.say_withheld()
    _forget_dead_clients(using)
    return taken


def _expire(delivery: Delivery, using: str) -> Settlement | None:
    """Expire one delivery; return None if it has ended, or if its rows are locked."""
    max_retries = known_max_retries(delivery.group, using)
    delay = delay_after_expiry(delivery.group, delivery.attempt)
    try:
        return retrying(expire, using, delivery, max_retries, delay, patience=LOCK_WAIT_SECONDS)
    except OperationalError as error:
        if not held_by_others(error, using):
            raise
        logger.warning(
            "Delivery %d has expired, but its rows are locked: %s",
            *(delivery.pk, error),
            extra=event("delivery.locked", delivery=delivery.pk, group=delivery.group.name),
        )
        return None


def _grace(using: str, *, was_outage: bool) -> None:
    """Extend all leases after a time in which nobody has swept for longer than a lease.

    The database was unavailable, not the clients. So they get one lease of time to renew before
    anything expires.
    """
    _extend(Consumer.objects.using(using), "lease_until")
    if _extend(Delivery.objects.using(using).held(), "deadline") and was_outage:
        logger.warning(
            "First sweep after an outage: all leases are extended by %d s",
            LEASE_SECONDS,
            extra=event("sweep.after_outage", database=using),
        )


def _extend(rows: QuerySet[Any], until: str) -> int:
    """Move ``until`` to a lease from now, where it is sooner; return the number of rows.

    A locked row is skipped. A session that the outage has left half-open may hold it until the
    server closes that session, and a wait for it would end this sweep and each one after it.
    """
    pks = list(rows.select_for_update(skip_locked=True).values_list("pk", flat=True))
    # By the key only: by another index, the UPDATE would wait for the rows that were skipped.
    every = rows.model._base_manager.using(rows.db)
    for at in range(0, len(pks), LIST):
        some = every.filter(pk__in=pks[at : at + LIST])
        some.update(**{until: Greatest(F(until), UtcNow(LEASE))})
    return len(pks)


def _forget_dead_clients(using: str) -> None:
    dead = Consumer.objects.using(using).filter(lease_until__lt=UtcNow(-LEASE))
    retrying(dead.delete, using)

"""Runs the step that redrives dead letters at a rate: the next few of each redrive that runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connections
from django.db.models import F

from streams.consume.outcome.dead_letter import redrive_each
from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.models import DeadMessage, Redrive, RedriveState, UtcNow
from streams.models.step import REDRIVES
from streams.steps.turns import is_turn, may_ask, rest

logger = logging.getLogger("streams.maintenance")

REDRIVES_EVERY = timedelta(seconds=5)
# How long a process rests that has found none: a redrive that somebody begins waits for that long.
LOOK_EVERY = timedelta(seconds=15)
# The thread that sweeps runs this step, too. What is left then stays due.
STEP_SECONDS = 2.0
# Letters of one transaction.
BATCH = 500
# The most letters that one transaction compares with a class of error, which no index has.
COMPARED = 2000


def step_redrives_if_due(using: str) -> int:
    """Redrive what is due of each redrive, unless any process has in the last REDRIVES_EVERY.

    Returns the number of letters.
    """
    if not may_ask(REDRIVES, using):
        return 0
    running = Redrive.objects.using(using).running().order_by("pk")
    ids = retrying(list, using, running.values_list("pk", flat=True))
    if not ids:
        rest(REDRIVES, using, LOOK_EVERY)
        return 0
    if not is_turn(REDRIVES, REDRIVES_EVERY, using):
        return 0
    return step_redrives(ids, using)


def step_redrives(ids: Sequence[int], using: str) -> int:
    """Redrive what is due of these redrives; return the number of letters."""
    ends = time.monotonic() + STEP_SECONDS
    done = 0
    for pk in ids:
        spread = 0.0  # seconds for which retries are due already
        while time.monotonic() < ends:
            redriven, seconds, goes_on = retrying(_batch, using, pk, spread, using)
            done += redriven
            spread += seconds
            if not goes_on:
                break
    return done


def _batch(pk: int, spread: float, using: str) -> tuple[int, float, bool]:
    """Redrive the next letters, their retries due one after the other from ``spread`` seconds on.

    Returns how many, for how many seconds, and whether more are due now.
    """
    with own_transaction(using):
        # The lock keeps a second process, and somebody who stops it, out until this is committed.
        rows = Redrive.objects.using(using).running().filter(pk=pk)
        plan = rows.select_for_update(skip_locked=True).annotate(now=UtcNow()).first()
        if plan is None:
            return 0, 0.0, False
        now: datetime = plan.now  # type: ignore[attr-defined]  # annotated
        due = plan.due(now)
        if due < 0:  # the clock was set back
            rows.update(stepped_at=now)
            return 0, 0.0, False
        # (1 / rate) * rate may be a little less than 1.
        allowed = min(BATCH, int(due * plan.rate + 1e-9))
        if allowed < 1:
            return 0, 0.0, False
        chosen, after = _next(plan, allowed, using)
        if after is None:
            rows.update(state=RedriveState.DONE, finished_at=UtcNow())
            _say(plan)
            return 0, 0.0, False
        done = redrive_each(
            chosen, using, timedelta(seconds=1 / plan.rate), timedelta(seconds=spread)
        )
        seconds = len(chosen) / plan.rate
        rows.update(
            after=after,
            done=F("done") + done,
            skipped=F("skipped") + len(chosen) - done,
            # What is due and was not redriven stays due.
            stepped_at=now - timedelta(seconds=due - seconds),
        )
    return done, seconds, True


def _next(plan: Redrive, most: int, using: str) -> tuple[list[int], int | None]:
    """Return the ids of the next letters, and the id up to which all were looked at; None if there
    are none left.
    """
    if plan.left is not None:
        most = min(most, plan.left)
    if not most:
        return [], None
    if plan.ids is not None:
        ids = sorted(pk for pk in plan.ids if pk > plan.after)[:most]
        return ids, ids[-1] if ids else None
    looked = COMPARED if plan.error_class else most
    statement = sql.WAITING_LETTERS[connections[using].vendor]
    found = sorted(
        pk
        for group in plan.groups
        for (pk,) in fetch(using, statement, [group, plan.after, plan.upto, looked])
    )[:looked]
    if not found or not plan.error_class:
        return found, found[-1] if found else None
    letters = DeadMessage.objects.using(using).filter(pk__in=found, error_class=plan.error_class)
    chosen = list(letters.order_by("pk").values_list("pk", flat=True)[:most])
    return chosen, chosen[-1] if len(chosen) == most else found[-1]


def _say(plan: Redrive) -> None:
    logger.info(
        "Redrive %d is done: %d redriven, %d left out",
        *(plan.pk, plan.done, plan.skipped),
        extra=event("redrive.done", redrive=plan.pk, count=plan.done),
    )

"""Runs the step that sends notifications, and tries again what could not be sent.

A notification is sent at least once: who dies between sending and noting it sends again, with the
same id. The attempts follow a ladder, so a channel that is down loses nothing.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from monitoring.alarms.sending import SECONDS, send_one
from monitoring.models import AlarmChannel, AlarmNotification, Event
from monitoring.models.alarm_notification import NotificationState
from streams.database.retrying import retrying
from streams.logs import event
from streams.models import UtcNow
from streams.outgoing import SendingFailed
from streams.steps.turns import is_turn

logger = logging.getLogger("streams.alarms")

STEP = "notifications"
EVERY = timedelta(seconds=5)
# Seconds that one run may take: it shares a thread with the sweep, which ends leases after 15 s.
RUN_SECONDS = 5.0
# Less time than this is not worth an attempt.
LEAST_SECONDS = 1.0
# The most notifications of one run.
BATCH = 50

# Seconds from the end of an attempt to the next one; the last delay repeats for three days.
LADDER = (10, 30, 60, 120, 300, 600, 1800, 3600)
ATTEMPTS = len(LADDER) + 72
# What was written before is given up: the ladder has ended, or its channel was off.
OLDEST = timedelta(days=4)
# How long the other notifications of a channel wait at most, when one of them could not be sent.
OTHERS_WAIT = timedelta(seconds=60)


def deliver_if_due(using: str) -> None:
    """Send what is due, unless any process has in the last EVERY."""
    # Looked at first: usually nothing is due, and then one read is enough.
    due = AlarmNotification.objects.using(using).due()
    if retrying(due.exists, using) and is_turn(STEP, EVERY, using):
        deliver(using)


def deliver(using: str, seconds: float = RUN_SECONDS) -> int:
    """Send what is due, for at most ``seconds``; return how many notifications were sent.

    After a failure of a channel its other notifications wait as long as the one that has failed.
    """
    limit = time.monotonic() + seconds
    retrying(_give_up_old, using, using)
    # Those with the fewest attempts first: one that its channel always refuses holds up no other.
    due = AlarmNotification.objects.using(using).due().select_related("alarm", "channel")
    rows = retrying(list, using, due.order_by("attempts", "pk")[:BATCH])
    failed: set[int] = set()
    sent = 0
    for row in rows:
        left = limit - time.monotonic()
        if left < LEAST_SECONDS:
            break
        if row.channel_id in failed or not retrying(row.take, using):
            continue
        if attempt(row, row.channel, using, seconds=min(left, SECONDS)):
            failed.add(row.channel_id)
        else:
            sent += 1
    return sent


def _give_up_old(using: str) -> None:
    waiting = AlarmNotification.objects.using(using).waiting()
    ids = list(waiting.filter(created_at__lt=UtcNow(-OLDEST)).values_list("pk", flat=True)[:1000])
    if ids:
        rows = AlarmNotification._base_manager.using(using).filter(pk__in=ids)
        rows.filter(state=NotificationState.WAITING).update(state=NotificationState.GIVEN_UP)


def attempt(
    row: AlarmNotification, channel: AlarmChannel, using: str, *, seconds: float = SECONDS
) -> str:
    """Send a notification that was taken, and note what came of it; return the error or ""."""
    try:
        send_one(row, channel, seconds)
    except SendingFailed as failure:
        error = " ".join(str(failure).split())[:500]
    else:
        retrying(row.note_sent, using)
        _note(channel, using, last_sent_at=UtcNow(), last_error="")
        return ""
    delay = None if row.event == Event.TEST else delay_after(row.attempts)
    retrying(row.note_failed, using, error, delay)
    _note(channel, using, last_failed_at=UtcNow(), last_error=error)
    if delay is not None:
        others = AlarmNotification.objects.using(using).waiting().filter(channel=channel.pk)
        ids = list(others.filter(due_at__lte=UtcNow()).values_list("pk", flat=True))
        postponed = AlarmNotification._base_manager.using(using).filter(pk__in=ids)
        postponed.update(due_at=UtcNow(min(delay, OTHERS_WAIT)))
    logger.warning(
        "Alarm channel %s: attempt %d of a notification failed: %s",
        *(channel, row.attempts, error),
        extra=event(
            "alarm.not_sent",
            channel=channel.name,
            notification=row.uid,
            attempt=row.attempts,
            error=error,
        ),
    )
    return error


def delay_after(attempts: int) -> timedelta | None:
    """Return how long to wait after this many attempts; None gives up."""
    if attempts >= ATTEMPTS:
        return None
    return timedelta(seconds=LADDER[min(attempts, len(LADDER)) - 1])


def send_test(channel: AlarmChannel, using: str) -> str:
    """Send a test by the channel, at once and only once; return the error or ""."""
    row = AlarmNotification.objects.using(using).create(channel=channel, event=Event.TEST)
    row.take()
    return attempt(row, channel, using)


def _note(channel: AlarmChannel, using: str, **changes: object) -> None:
    mine = AlarmChannel._base_manager.using(using).filter(pk=channel.pk)
    retrying(lambda: mine.update(**changes), using)

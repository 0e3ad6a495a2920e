"""Sends committed messages whose topic did not take them at once: limited tries, then a person."""

from __future__ import annotations

import logging
import time
from functools import partial

from streams import signals
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.runtime_settings import system
from streams.two_phase.claim import due_checkers
from streams.two_phase.decide import send_locked
from streams.two_phase.record import about, told
from streams.two_phase.row import change, lock

logger = logging.getLogger("streams.two_phase")

# The most messages of one checker in one round.
BATCH = 100


def forward_due(using: str, ends: float) -> int:
    """Try again to send what is due, each once; return how many messages were sent.

    A round is begun only before ``ends``, of the monotonic clock.
    """
    state, sent = PreparedState.COMMITTED, 0
    tried: set[int] = set()
    # By checker, as the index is sorted.
    waiting = retrying(due_checkers, using, using, state)
    while waiting and time.monotonic() < ends:
        for checker in list(waiting):
            rows = PreparedRow.objects.using(using).filter(
                state=state, checker=checker, next_at__lte=UtcNow()
            )
            due = rows.order_by("next_at").only("biz", "biz_key")[:BATCH]
            found: list[PreparedRow] = retrying(list, using, due)
            fresh = [one for one in found if one.pk not in tried]  # the others are locked
            sent += sum(forward(one, using) for one in fresh)
            if len(found) < BATCH or not fresh:
                waiting.remove(checker)
            tried.update(one.pk for one in fresh)
    return sent


def forward(waiting: PreparedRow, using: str) -> bool:
    """Try to send one committed message now; return whether this call has sent it."""
    row = retrying(partial(_forward, waiting, using), using)
    if row is None:
        return False
    if row.state == PreparedState.UNSENT:
        logger.error(
            "Prepared message %s is committed and cannot be sent, after %d tries: %s",
            *(row, row.sends, row.last_error),
            extra=event("prepared.unsent", **about(row, using), tries=row.sends),
        )
        signals.prepared_unsent.send_robust(PreparedRow, **told(row, using))
    return row.state == PreparedState.SENT


def _forward(waiting: PreparedRow, using: str) -> PreparedRow | None:
    with own_transaction(using):
        row = lock(waiting.pk, waiting.biz, waiting.biz_key, using, waits=False)
        if row is None or row.state != PreparedState.COMMITTED:  # another process has it
            return None
        if row.next_at and row.next_at > row.locked_at:  # or has tried it since it was listed
            return None
        send_locked(row, "", using)
        if row.state == PreparedState.COMMITTED and row.sends >= system("sendMaxTimes", using):
            unsent = {"state": PreparedState.UNSENT.value, "next_at": None}
            change(row, [PreparedState.COMMITTED], unsent, using)
        return row

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
            due = rows.order_by("next_at").values_list("pk", flat=True)[:BATCH]
            ids: list[int] = retrying(list, using, due)
            fresh = [pk for pk in ids if pk not in tried]  # the others are locked
            sent += sum(forward(pk, using) for pk in fresh)
            if len(ids) < BATCH or not fresh:
                waiting.remove(checker)
            tried.update(fresh)
    return sent


def forward(pk: int, using: str) -> bool:
    """Try to send one committed message now; return whether this call has sent it."""
    row = retrying(partial(_forward, pk, using), using)
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


def _forward(pk: int, using: str) -> PreparedRow | None:
    with own_transaction(using):
        rows = PreparedRow.objects.using(using).select_for_update(skip_locked=True)
        row = rows.filter(pk=pk, state=PreparedState.COMMITTED).first()
        if row is None:  # sent by another process, or locked by it
            return None
        send_locked(row, "", using)
        if row.state == PreparedState.COMMITTED and row.sends >= system("sendMaxTimes", using):
            mine = PreparedRow.objects.using(using).filter(pk=pk, state=PreparedState.COMMITTED)
            mine.update(state=PreparedState.UNSENT, next_at=None)
            row.state = PreparedState.UNSENT
        return row

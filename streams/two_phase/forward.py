"""Sends committed messages whose topic did not take them at once: limited tries, then a person."""

from __future__ import annotations

import logging
from functools import partial

from streams import signals
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.runtime_settings import system
from streams.two_phase.decide import send_locked
from streams.two_phase.record import about, told

logger = logging.getLogger("streams.two_phase")

# The most messages of one round.
BATCH = 100


def forward_due(using: str) -> int:
    """Try again to send what is due; return how many messages were sent."""
    rows = PreparedRow.objects.using(using).filter(
        state=PreparedState.COMMITTED, next_at__lte=UtcNow()
    )
    ids = retrying(list, using, rows.order_by("next_at").values_list("pk", flat=True)[:BATCH])
    return sum(forward(pk, using) for pk in ids)


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
        rows = PreparedRow.objects.using(using).select_for_update()
        row = rows.filter(pk=pk, state=PreparedState.COMMITTED).first()
        if row is None:  # sent by another process
            return None
        send_locked(row, "", using)
        if row.state == PreparedState.COMMITTED and row.sends >= system("sendMaxTimes", using):
            mine = PreparedRow.objects.using(using).filter(pk=pk, state=PreparedState.COMMITTED)
            mine.update(state=PreparedState.UNSENT, next_at=None)
            row.state = PreparedState.UNSENT
        return row

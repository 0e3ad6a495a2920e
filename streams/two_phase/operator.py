"""Defines what an operator may do with one prepared message, beside commit and rollback."""

from __future__ import annotations

from itertools import count

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.models.prepared import MAX_ERROR
from streams.runtime_settings import system
from streams.two_phase.forward import forward
from streams.two_phase.placing import place


def check_now(row: PreparedRow, using: str) -> bool:
    """Let the next step ask about it, once more if a person was to decide.

    What nobody answers goes back to a person. Return False if it is decided, or asked about then
    anyway.
    """
    rows = PreparedRow.objects.using(using).filter(pk=row.pk)
    waiting = rows.filter(state=PreparedState.PREPARED).exclude(next_at__lte=UtcNow())
    if retrying(lambda: waiting.update(next_at=UtcNow()), using):
        return True
    last = max(0, system("verifyMaxTimes", using) - 1)
    manual = rows.filter(state=PreparedState.MANUAL)
    changes = {"state": PreparedState.PREPARED, "checks": last, "next_at": UtcNow()}
    return bool(retrying(lambda: manual.update(**changes), using))


def send_again(row: PreparedRow, using: str) -> bool:
    """Try to send what could not be sent, from the first try; return whether it is sent now."""
    rows = PreparedRow.objects.using(using).filter(pk=row.pk, state=PreparedState.UNSENT)
    changes = {"state": PreparedState.COMMITTED, "sends": 0, "next_at": UtcNow()}
    return bool(retrying(lambda: rows.update(**changes), using)) and forward(row, using)


def send_anyway(row: PreparedRow, by: str, using: str) -> bool:
    """Send the body of what was rolled back, once; False if that was done, or is not possible.

    The decision stands: the row stays rolled back, and notes the message. Raises a StreamsError if
    the topic refuses it.
    """
    tries = count(1)
    return retrying(lambda: _send_anyway(row.pk, by, using, next(tries)), using)


def _send_anyway(pk: int, by: str, using: str, tries: int) -> bool:
    note = (f"Sent anyway by {by}.")[:MAX_ERROR]
    with own_transaction(using):
        rows = PreparedRow.objects.using(using).filter(
            pk=pk, state=PreparedState.ROLLED_BACK, message_id=None
        )
        row = rows.select_for_update().first()
        if row is None:
            # Its own try before this one may have done it, and the reply to the COMMIT was lost.
            done = PreparedRow.objects.using(using).filter(pk=pk, last_error=note)
            return tries > 1 and done.exclude(message_id=None).exists()
        sent = place(row, using)
        rows.update(
            message_id=sent.message_id,
            sent_partition=sent.partition,
            sent_at=UtcNow(),
            disputed_at=None,
            last_error=note,
        )
        return True

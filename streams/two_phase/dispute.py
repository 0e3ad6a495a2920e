"""Notes that a caller commits what a check has rolled back: the check was wrong.

It is written on another connection, since the error may roll back the caller's transaction.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from threading import Thread

from django.db import Error, connections

from streams import signals
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying
from streams.database.transactions import (
    in_test_case,
    in_transaction,
    short_lock_waits,
    supports_other_connections,
)
from streams.logs import event
from streams.models import PreparedRow, UtcNow
from streams.two_phase.record import CALLER, CHECK, TOKEN, about, told

logger = logging.getLogger("streams.two_phase")

# Seconds to wait for a row that somebody else decides about, to write only a note.
NOTE_SECONDS = 2


def dispute(row: PreparedRow, by: str, using: str, *, is_locked: bool = False) -> None:
    """Log the dispute, note it and send the signal, if a caller commits what a check rolled back.

    Nothing is disputed once an operator has sent the message anyway, or has said that the rollback
    was right. ``is_locked``: the caller's transaction has locked the row, so the note waits in a
    thread for its end, and is lost if this process dies before.
    """
    is_callers = by.startswith((CALLER, TOKEN))
    if not is_callers or not row.decided_by.startswith(CHECK) or row.message_id is not None:
        return
    logger.error(
        "Prepared message %s was rolled back by %s, and now its caller commits it: the check"
        " answers ROLLBACK before it can know. Its body is kept",
        *(row, row.decided_by),
        extra=event("prepared.disputed", **about(row, using), checker=row.checker),
    )
    joined = not in_transaction(using) or in_test_case(using)
    if is_locked and not joined and supports_other_connections(using):
        Thread(target=_note_later, args=(row.pk, using), name="ems-dispute", daemon=True).start()
    elif joined:
        _note(row.pk, using)
    elif supports_other_connections(using):
        elsewhere(using, partial(_note, row.pk, using))
    signals.prepared_disputed.send_robust(PreparedRow, **told(row, using))


def _note(pk: int, using: str) -> None:
    with short_lock_waits(using, NOTE_SECONDS), suppress(Error):
        _write(pk, using)


def _note_later(pk: int, using: str) -> None:
    try:
        connections[using].set_autocommit(True)  # the project may have it off
        with suppress(Error):
            retrying(_write, using, pk, using)
    finally:
        connections[using].close()


def _write(pk: int, using: str) -> None:
    rows = PreparedRow.objects.using(using).disputable().filter(pk=pk)
    rows.update(disputed_at=UtcNow())

"""Commits and rolls back prepared messages: once, whoever says so, and however often.

The row is locked first, then the message is inserted, then the row is changed, in one transaction:
a second caller waits at the lock and then sees the decision. Nobody locks the other way round.
With the id of the row known, and no transaction open, these are all its statements.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from django.db import Error

from streams import telemetry
from streams.api import Decision
from streams.conf import make_sure_enabled
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying, tables_missing
from streams.database.transactions import (
    in_transaction,
    latest_rows,
    own_transaction,
    sees_the_past,
)
from streams.errors import (
    AlreadyDecided,
    NotMigrated,
    StreamsError,
    UnknownPrepared,
    UnknownTopic,
    describe,
)
from streams.log.topics import resolve
from streams.logs import event
from streams.models import PreparedRow, PreparedState
from streams.models.prepared import COMMITTED, UNDECIDED, of_key
from streams.rules.names import MAX_PRODUCER
from streams.two_phase.dispute import dispute
from streams.two_phase.placing import place
from streams.two_phase.record import CHECK, OPERATOR, about
from streams.two_phase.row import Changed, change, lock
from streams.two_phase.schedule import pause_after

logger = logging.getLogger("streams.two_phase")

# Seconds for which a decision is tried again after a deadlock or a lost connection.
PATIENCE_SECONDS = 30.0

# The states in which a message may still be sent.
SENDABLE = (*UNDECIDED, PreparedState.COMMITTED)


class KnownRow(NamedTuple):
    """What was read of a row before: it is locked by its id, without a look for it."""

    pk: int
    topic: str


class RowBusy(Exception):
    """Another transaction has the row, or it is gone: nothing is written."""


def commit(
    biz: str,
    biz_key: str,
    *,
    by: str,
    using: str,
    patience: float = PATIENCE_SECONDS,
    known: KnownRow | None = None,
    waits: bool = True,
) -> PreparedRow:
    """Send the message in the open transaction, or at once; return the row as it is then.

    ``by`` says who decides, ``patience`` for how many seconds it is tried again. Without effect if
    it is committed already. If its topic takes no message at present, the decision stands and the
    message is sent later. Raises AlreadyDecided, UnknownPrepared; and RowBusy without ``waits``,
    where it would wait for the transaction of somebody else.
    """
    return _translating(partial(_commit, biz, biz_key, by, using, known, waits), using, patience)


def roll_back(
    biz: str,
    biz_key: str,
    *,
    by: str,
    using: str,
    patience: float = PATIENCE_SECONDS,
    known: KnownRow | None = None,
    waits: bool = True,
) -> PreparedRow:
    """Drop the message in the open transaction, or at once; return the row as it is then.

    Its body is kept until the row is purged. Without effect if it is rolled back already; but an
    operator ends a dispute so: the check was right. Raises AlreadyDecided, UnknownPrepared; and
    RowBusy as commit() does.
    """
    return _translating(partial(_roll_back, biz, biz_key, by, using, known, waits), using, patience)


def abandon(biz: str, biz_key: str, *, by: str, using: str) -> None:
    """Roll back what is not sent yet, even if it is committed: its topic will be deleted."""

    def work() -> None:
        found = _find(biz, biz_key, using)
        with own_transaction(using):
            row = lock(found.pk, biz, biz_key, using)
            if row is not None and row.state in SENDABLE:
                dropped = {"state": PreparedState.ROLLED_BACK.value, "next_at": None}
                change(row, SENDABLE, {**dropped, **_decided(row, by)}, using)

    retrying(work, using)


def _decided(row: PreparedRow, by: str, answer: Decision | None = None) -> dict[str, Any]:
    """Return the columns that say who has decided; of a check, also what it has answered."""
    decided = {"decided_at": row.locked_at, "decided_by": by[:MAX_PRODUCER]}
    if answer is not None and by.startswith(CHECK):
        decided |= {"checked_at": row.locked_at, "last_answer": answer.value, "last_error": ""}
    return decided


def _translating(work: Any, using: str, patience: float) -> PreparedRow:
    make_sure_enabled()
    try:
        return retrying(work, using, patience=patience)  # type: ignore[no-any-return]
    except Error as error:
        if tables_missing(error):
            raise NotMigrated.on(using) from error
        raise


def _commit(
    biz: str, biz_key: str, by: str, using: str, known: KnownRow | None, waits: bool
) -> PreparedRow:
    # In a transaction of the caller a lock by an id that is gone would lock the gap for its time.
    look = known is None or in_transaction(using)
    while True:
        if look or known is None:
            found = _find(biz, biz_key, using)
            if found.state == PreparedState.ROLLED_BACK:
                dispute(found, by, using)
                raise refusal(found)
            known = KnownRow(found.pk, found.topic)
        if not in_transaction(using):
            with suppress(UnknownTopic):
                resolve(known.topic, using, create=False)  # into the cache, before the lock
        try:
            with own_transaction(using):
                row = lock(known.pk, biz, biz_key, using, waits=waits)
                if row is not None:
                    if row.state in COMMITTED:
                        return row
                    if row.state == PreparedState.ROLLED_BACK:
                        raise Changed(row)
                    send_locked(row, by, using)
                    return row
        except Changed as changed:
            # Read again without the lock. The transaction of a caller keeps it: there it is told.
            if in_transaction(using):
                dispute(changed.row, by, using, is_locked=True)
                raise refusal(changed.row) from None
        else:
            _check_absence(biz, biz_key, looked=look, waits=waits)
        look = True


def _roll_back(
    biz: str, biz_key: str, by: str, using: str, known: KnownRow | None, waits: bool
) -> PreparedRow:
    look = known is None or in_transaction(using)
    while True:
        pk = _find(biz, biz_key, using).pk if look or known is None else known.pk
        with own_transaction(using):
            row = lock(pk, biz, biz_key, using, waits=waits)
            if row is not None:
                _roll_back_locked(row, by, using)
                return row
        _check_absence(biz, biz_key, looked=look, waits=waits)
        look = True


def _check_absence(biz: str, biz_key: str, *, looked: bool, waits: bool) -> None:
    """Raise RowBusy or UnknownPrepared, unless the key is to be looked for under another id."""
    if not waits:
        raise RowBusy
    if looked:
        raise _unknown(biz, biz_key)


def _roll_back_locked(row: PreparedRow, by: str, using: str) -> None:
    if row.state in COMMITTED:
        raise refusal(row)
    if row.state != PreparedState.ROLLED_BACK:
        decided = _decided(row, by, Decision.ROLLBACK)
        dropped = {"state": PreparedState.ROLLED_BACK.value, "next_at": None}
        change(row, UNDECIDED, {**dropped, **decided}, using)
    elif row.is_disputed and by.startswith(OPERATOR):
        change(row, [row.state], {"disputed_at": None, **_decided(row, by)}, using)


def send_locked(row: PreparedRow, by: str, using: str) -> None:
    """Send the message of a row that this transaction has locked, or note that it has to wait.

    ``by`` is empty if the decision was made before. Raises Changed.
    """
    if telemetry.active():
        telemetry.run(telemetry.COMMIT, partial(_send_locked, row, by, using), row, using)
    else:
        _send_locked(row, by, using)


def _send_locked(row: PreparedRow, by: str, using: str) -> None:
    decided = _decided(row, by, Decision.COMMIT) if by else {}
    try:
        sent = place(row, using)
    except StreamsError as error:
        sends = row.sends + 1
        waiting = {
            "state": PreparedState.COMMITTED.value,
            "sends": sends,
            "next_at": row.locked_at + pause_after(sends, using),
            "last_error": describe(error),
        }
        change(row, SENDABLE, {**decided, **waiting}, using)
        logger.warning(
            "Prepared message %s is committed, and waits: %s",
            *(row, error),
            extra=event("prepared.waits", **about(row, using), error=type(error).__name__),
        )
        return
    done = {
        "state": PreparedState.SENT.value,
        "message_id": sent.message_id,
        "sent_partition": sent.partition,
        "sent_at": row.locked_at,
        "body": b"",
        "next_at": None,
        "last_error": "",
    }
    change(row, SENDABLE, {**decided, **done}, using)


def _find(biz: str, biz_key: str, using: str) -> PreparedRow:
    """Read the row plainly; raises UnknownPrepared.

    A locking read of a row that is not there would lock the gap into which others prepare.
    """

    def read() -> PreparedRow | None:
        rows = PreparedRow.objects.using(using)
        with latest_rows(using):  # at SERIALIZABLE it locks what it reads
            return rows.filter(of_key(biz, biz_key)).defer("body").first()

    row = read()
    # The snapshot of the caller's transaction may be older than the row, or than its state.
    if sees_the_past(using) and (row is None or not row.is_undecided):
        row = elsewhere(using, read) or row
    if row is None:
        raise _unknown(biz, biz_key)
    return row


def _unknown(biz: str, biz_key: str) -> UnknownPrepared:
    return UnknownPrepared(f"There is no prepared message {biz}:{biz_key}: prepare it again.")


def refusal(row: PreparedRow) -> AlreadyDecided:
    """Return what says that the message is decided already, and by whom."""
    text = (
        "%(message)s is committed already, by %(who)s."
        if row.state in COMMITTED
        else "%(message)s is rolled back already, by %(who)s."
    )
    return AlreadyDecided(text % {"message": row, "who": row.decided_by})

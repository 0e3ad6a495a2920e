"""Commits and rolls back prepared messages: once, whoever says so, and however often.

The row is locked first, then the message is inserted, then the row is changed, in one transaction:
a second caller waits at the lock and then sees the decision. Nobody locks the other way round.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import Error, connections
from django.utils.translation import gettext as _

from streams import signals
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying, tables_missing
from streams.database.transactions import (
    after_commit,
    in_test_case,
    in_transaction,
    own_transaction,
    sees_the_past,
    short_lock_waits,
    supports_other_connections,
)
from streams.errors import (
    AlreadyDecided,
    NotMigrated,
    StreamsError,
    UnknownPrepared,
    UnknownTopic,
    WrongDatabase,
    describe,
)
from streams.log.topics import resolve
from streams.logs import event
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.models.prepared import COMMITTED, UNDECIDED, of_key
from streams.names import MAX_PRODUCER
from streams.produce.identity import producer_name
from streams.two_phase.placing import place
from streams.two_phase.schedule import pause_after

logger = logging.getLogger("streams.two_phase")

# Who has decided is kept with one of these before it.
CALLER, CHECK, TOKEN, OPERATOR = "caller:", "check:", "token:", "operator:"
# Seconds to wait for a row that somebody else decides about, when only a note is to be written.
NOTE_SECONDS = 2


class Changed(Exception):
    """Says that the row is in another state than was read: nothing is written."""

    def __init__(self, row: PreparedRow) -> None:
        self.row = row


def caller() -> str:
    """Return who decides when a caller does: the name of this thread."""
    return CALLER + producer_name()


def check_alias(using: str, verb: str) -> None:
    """Raise WrongDatabase if a transaction is open on another alias, and none on ``using``."""
    if len(connections.settings) == 1 or connections[using].in_atomic_block:
        return
    for other in connections.all(initialized_only=True):
        blocks = getattr(other, "atomic_blocks", [])
        if other.alias != using and not all(getattr(b, "_from_testcase", False) for b in blocks):
            raise WrongDatabase(
                _(
                    "The open transaction is on %(other)r, but EMS is on %(alias)r: a rollback"
                    " would not take this decision back. Use"
                    " transaction.on_commit(held.%(verb)s, using=%(other)r)."
                )
                % {"other": other.alias, "alias": using, "verb": verb}
            )


def commit(biz: str, biz_key: str, *, by: str, using: str) -> PreparedRow:
    """Send the message in the open transaction, or at once; return the row as it is then.

    ``by`` says who decides. Without effect if it is committed already. If its topic takes no
    message at present, the decision stands and the message is sent later. Raises AlreadyDecided,
    UnknownPrepared.
    """
    return _translating(partial(_commit, biz, biz_key, by, using), using)


def roll_back(biz: str, biz_key: str, *, by: str, using: str) -> PreparedRow:
    """Drop the message in the open transaction, or at once; return the row as it is then.

    Its body is kept until the row is purged. Without effect if it is rolled back already. Raises
    AlreadyDecided, UnknownPrepared.
    """
    return _translating(partial(_roll_back, biz, biz_key, by, using), using)


def abandon(biz: str, biz_key: str, *, by: str, using: str) -> None:
    """Roll back what is not sent yet, even if it is committed: its topic will be deleted."""

    def work() -> None:
        with own_transaction(using):
            row = _locked(_find(biz, biz_key, using), using)
            states = [*UNDECIDED, PreparedState.COMMITTED]
            if row.state in states:
                decided = {"decided_at": UtcNow(), "decided_by": by[:MAX_PRODUCER]}
                _update(
                    row, states, using, state=PreparedState.ROLLED_BACK, next_at=None, **decided
                )

    retrying(work, using)


def _decided(by: str) -> dict[str, Any]:
    return {"decided_at": UtcNow(), "decided_by": by[:MAX_PRODUCER]}


def _translating(work: Any, using: str) -> PreparedRow:
    try:
        return retrying(work, using)  # type: ignore[no-any-return]
    except Error as error:
        if tables_missing(error):
            raise NotMigrated.on(using) from error
        raise


def _commit(biz: str, biz_key: str, by: str, using: str) -> PreparedRow:
    while True:
        found = _find(biz, biz_key, using)
        if found.state == PreparedState.ROLLED_BACK:
            _dispute(found, using)
            raise _refusal(found)
        if not in_transaction(using):
            with suppress(UnknownTopic):
                resolve(found.topic, using, create=False)  # into the cache, before the lock
        try:
            with own_transaction(using):
                row = _locked(found, using)
                if row.state in COMMITTED:
                    return row
                if row.state == PreparedState.ROLLED_BACK:
                    raise Changed(row)
                send_locked(row, by, using)
                return row
        except Changed as changed:
            # Read again without the lock. The transaction of a caller keeps it: there it is told.
            if in_transaction(using):
                raise _refusal(changed.row) from None


def _roll_back(biz: str, biz_key: str, by: str, using: str) -> PreparedRow:
    found = _find(biz, biz_key, using)
    with own_transaction(using):
        row = _locked(found, using)
        if row.state in COMMITTED:
            raise _refusal(row)
        if row.state != PreparedState.ROLLED_BACK:
            changes = {"state": PreparedState.ROLLED_BACK, "next_at": None}
            _update(row, UNDECIDED, using, **changes, **_decided(by))
        return row


def send_locked(row: PreparedRow, by: str, using: str) -> None:
    """Send the message of a row that this transaction has locked, or note that it has to wait.

    ``by`` is empty if the decision was made before. Raises Changed.
    """
    decided = _decided(by) if by else {}
    undecided = (*UNDECIDED, PreparedState.COMMITTED)
    try:
        sent = place(row, using)
    except StreamsError as error:
        sends = row.sends + 1
        _update(
            row,
            undecided,
            using,
            state=PreparedState.COMMITTED,
            sends=sends,
            next_at=UtcNow(pause_after(sends, using)),
            last_error=describe(error),
            **decided,
        )
        logger.warning(
            "Prepared message %s is committed, and waits: %s",
            *(row, error),
            extra=event("prepared.waits", **about(row, using), error=type(error).__name__),
        )
        return
    _update(
        row,
        undecided,
        using,
        state=PreparedState.SENT,
        message_id=sent.message_id,
        sent_partition=sent.partition,
        sent_at=UtcNow(),
        body=b"",
        next_at=None,
        last_error="",
        **decided,
    )


def about(row: PreparedRow, using: str) -> dict[str, Any]:
    """Return what the log says of a prepared message."""
    return {"biz": row.biz, "biz_key": row.biz_key, "topic": row.topic, "database": using}


def _find(biz: str, biz_key: str, using: str) -> PreparedRow:
    """Read the row plainly; raises UnknownPrepared.

    A locking read of a row that is not there would lock the gap into which others prepare.
    """

    def read() -> PreparedRow | None:
        rows = PreparedRow.objects.using(using)
        return rows.filter(of_key(biz, biz_key)).defer("body").first()

    row = read()
    # The snapshot of the caller's transaction may be older than the row, or than its state.
    if sees_the_past(using) and (row is None or not row.is_undecided):
        row = elsewhere(using, read) or row
    if row is None:
        raise UnknownPrepared(
            _("There is no prepared message %(biz)s:%(key)s: prepare it again.")
            % {"biz": biz, "key": biz_key}
        )
    return row


def _locked(found: PreparedRow, using: str) -> PreparedRow:
    rows = PreparedRow.objects.using(using).select_for_update()
    row = rows.filter(pk=found.pk, biz=found.biz, biz_key=found.biz_key).first()
    if row is None:
        raise UnknownPrepared
    return row


def _update(row: PreparedRow, states: Any, using: str, **values: Any) -> None:
    """Change the row if it is still in one of ``states``, and ``row`` with it; raises Changed."""
    rows = PreparedRow.objects.using(using).filter(pk=row.pk, state__in=states)
    if not rows.update(**values):
        raise Changed(row)
    row.refresh_from_db(using=using, fields=[*values])


def _refusal(row: PreparedRow) -> AlreadyDecided:
    text = (
        _("%(message)s is committed already, by %(who)s.")
        if row.state in COMMITTED
        else _("%(message)s is rolled back already, by %(who)s.")
    )
    return AlreadyDecided(text % {"message": row, "who": row.decided_by})


def _dispute(row: PreparedRow, using: str) -> None:
    """Note that the caller commits what a check has rolled back: the check was wrong.

    It is written on another connection, since the error may roll back the caller's transaction.
    """
    if not row.decided_by.startswith(CHECK):
        return
    logger.error(
        "Prepared message %s was rolled back by %s, and now its caller commits it: the check"
        " answers ROLLBACK before it can know. Its body is kept",
        *(row, row.decided_by),
        extra=event("prepared.disputed", **about(row, using), checker=row.checker),
    )

    def note() -> None:
        rows = PreparedRow.objects.using(using).disputable().filter(pk=row.pk)
        with short_lock_waits(using, NOTE_SECONDS), suppress(Error):
            rows.update(disputed_at=UtcNow())

    if not in_transaction(using) or in_test_case(using):
        note()
    elif supports_other_connections(using):
        elsewhere(using, note)
    after_commit(partial(_tell_dispute, row, using), using)


def _tell_dispute(row: PreparedRow, using: str) -> None:
    signals.prepared_disputed.send_robust(PreparedRow, **told(row, using))


def told(row: PreparedRow, using: str) -> dict[str, Any]:
    """Return the arguments of the signals."""
    return {"biz": row.biz, "biz_key": row.biz_key, "topic": row.topic, "using": using}

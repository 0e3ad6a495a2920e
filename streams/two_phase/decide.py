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
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext as _

from streams import telemetry
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying, tables_missing
from streams.database.transactions import (
    in_transaction,
    own_transaction,
    sees_the_past,
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
from streams.two_phase.dispute import dispute
from streams.two_phase.placing import place
from streams.two_phase.record import OPERATOR, about
from streams.two_phase.schedule import pause_after

logger = logging.getLogger("streams.two_phase")

# Seconds for which a decision is tried again after a deadlock or a lost connection.
PATIENCE_SECONDS = 30.0


class Changed(Exception):
    """Says that the row is in another state than was read: nothing is written."""

    def __init__(self, row: PreparedRow) -> None:
        self.row = row


def check_alias(using: str, topic: str, verb: str) -> None:
    """Raise WrongDatabase if a transaction is open on another alias, and none on ``using``."""
    if len(connections.settings) == 1 or _in_block(connections[using]):
        return
    for other in connections.all(initialized_only=True):
        if other.alias != using and _in_block(other):
            raise WrongDatabase(
                _(
                    "The open transaction is on %(other)r, but the topic %(topic)s is on"
                    " %(alias)r: a rollback would not take this decision back. Use"
                    " transaction.on_commit(held.%(verb)s, using=%(other)r)."
                )
                % {"other": other.alias, "topic": topic, "alias": using, "verb": verb}
            )


def _in_block(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether an atomic block is open that is not of a TestCase, which all aliases have."""
    blocks = getattr(connection, "atomic_blocks", [])
    return not all(getattr(block, "_from_testcase", False) for block in blocks)


def commit(
    biz: str, biz_key: str, *, by: str, using: str, patience: float = PATIENCE_SECONDS
) -> PreparedRow:
    """Send the message in the open transaction, or at once; return the row as it is then.

    ``by`` says who decides, ``patience`` for how many seconds it is tried again. Without effect if
    it is committed already. If its topic takes no message at present, the decision stands and the
    message is sent later. Raises AlreadyDecided, UnknownPrepared.
    """
    return _translating(partial(_commit, biz, biz_key, by, using), using, patience)


def roll_back(
    biz: str, biz_key: str, *, by: str, using: str, patience: float = PATIENCE_SECONDS
) -> PreparedRow:
    """Drop the message in the open transaction, or at once; return the row as it is then.

    Its body is kept until the row is purged. Without effect if it is rolled back already; but an
    operator ends a dispute so: the check was right. Raises AlreadyDecided, UnknownPrepared.
    """
    return _translating(partial(_roll_back, biz, biz_key, by, using), using, patience)


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


def _translating(work: Any, using: str, patience: float) -> PreparedRow:
    try:
        return retrying(work, using, patience=patience)  # type: ignore[no-any-return]
    except Error as error:
        if tables_missing(error):
            raise NotMigrated.on(using) from error
        raise


def _commit(biz: str, biz_key: str, by: str, using: str) -> PreparedRow:
    while True:
        found = _find(biz, biz_key, using)
        if found.state == PreparedState.ROLLED_BACK:
            dispute(found, by, using)
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
                dispute(changed.row, by, using, is_locked=True)
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
        elif row.is_disputed and by.startswith(OPERATOR):
            _update(row, [row.state], using, disputed_at=None, **_decided(by))
        return row


def send_locked(row: PreparedRow, by: str, using: str) -> None:
    """Send the message of a row that this transaction has locked, or note that it has to wait.

    ``by`` is empty if the decision was made before. Raises Changed.
    """
    if telemetry.active():
        telemetry.run(telemetry.COMMIT, partial(_send_locked, row, by, using), row, using)
    else:
        _send_locked(row, by, using)


def _send_locked(row: PreparedRow, by: str, using: str) -> None:
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

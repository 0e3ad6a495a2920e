"""Defines cancel(), which takes back a delayed message that is not visible yet."""

from __future__ import annotations

from typing import Any, Literal

from django.db import connections
from django.utils.translation import gettext as _

from streams import conf
from streams.database.elsewhere import elsewhere
from streams.database.sql import send as sql
from streams.database.sql.dialect import delete_by_id, execute, fetch
from streams.database.transactions import own_transaction, sees_the_past
from streams.errors import InvalidMessage


def cancel(
    message_id: int, *, using: str | None = None
) -> Literal["cancelled", "visible", "unknown"]:
    """Take back a delayed message, as part of the transaction that is open, or at once.

    Returns "cancelled" if it is gone and its dedup key is free again; "visible" if it is too late
    or the message was not delayed: groups have it or will have it at once; "unknown" if there is
    no such message: it was cancelled before, or purged. Raises InvalidMessage if ``message_id``
    is no integer.
    """
    given: Any = message_id
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidMessage(_("cancel() takes the message_id of a SendResult, not %r.") % (given,))
    alias = conf.database(using)
    vendor = connections[alias].vendor
    past = sees_the_past(alias)
    with own_transaction(alias):
        # The row is read first. If there is none, a DELETE may lock the gap into which new messages
        # are inserted; and a lock on an immediate one would stop its partition until the caller's
        # commit.
        found = _find(message_id, alias)
        if not found and past:
            found = elsewhere(alias, lambda: _find(message_id, alias))
        if not found:
            return "unknown"
        if not found[0][0]:
            return "visible"
        delete = delete_by_id(vendor, "ems_msg", [message_id], sql.CANCELLABLE)
        if not execute(alias, delete):
            # The message was sequenced since, or cancelled by a transaction whose commit this one
            # has waited for. A locking read tells which, at any isolation level of the caller.
            still = fetch(alias, sql.LOCK_MESSAGE[vendor], [message_id])
            return "visible" if still else "unknown"
        for _delayed, key in found:
            if key is not None:
                execute(alias, sql.FREE_DEDUP[vendor], [key, message_id])
    return "cancelled"


def _find(message_id: int, using: str) -> list[Any]:
    """Return [(whether it can be cancelled, the id of its dedup row)], or [] without the row."""
    return fetch(using, sql.FIND_MESSAGE, [message_id])

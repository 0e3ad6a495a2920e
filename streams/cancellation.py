"""cancel(): take back a delayed message that is not visible yet."""

from __future__ import annotations

from typing import Any, Literal

from django.db import connections
from django.utils.translation import gettext as _

from streams import conf, sql
from streams.errors import InvalidMessage
from streams.transactions import own_transaction


def cancel(
    message_id: int, *, using: str | None = None
) -> Literal["cancelled", "visible", "unknown"]:
    """Take back a delayed message, as part of the transaction that is open, or at once.

    "cancelled": it is gone, and its dedup key is free again. "visible": too late, or it was not
    delayed: groups have it or will at once. "unknown": there is no such message; it was cancelled
    before, or purged. Raises InvalidMessage for what is no id.
    """
    given: Any = message_id
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidMessage(_("cancel() takes the message_id of a SendResult, not %r.") % (given,))
    alias = conf.database(using)
    with own_transaction(alias):
        # Seen first: where there is no row, a DELETE may lock the gap that new messages go to.
        if not sql.fetch(alias, sql.FIND_MESSAGE, [message_id]):
            return "unknown"
        if not sql.execute(alias, sql.CANCEL, [message_id, sql.IMMEDIATE]):
            # Sequenced or immediate; or cancelled by somebody for whose commit we have waited.
            # A locking read sees that, whatever the isolation of the caller.
            still = sql.LOCK_MESSAGE[connections[alias].vendor]
            return "visible" if sql.fetch(alias, still, [message_id]) else "unknown"
        sql.execute(alias, sql.FREE_DEDUP, [message_id])
    return "cancelled"

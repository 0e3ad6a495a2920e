"""Tells whether consumers have nothing left to do."""

from __future__ import annotations

from streams.database.snapshot import snapshot
from streams.models import Cursor, Delivery, Message, RetryMessage


def all_is_consumed(using: str = "default") -> bool:
    """Tell whether nothing is in the inbox, in the log before a cursor, in hand or to be retried.

    It is one look: a message that moves on between two looks would be in none of them.
    """
    with snapshot(using):
        return not (
            Message.objects.using(using).inbox().exists()
            or Cursor.objects.using(using).behind().exists()
            or Delivery.objects.using(using).open().exists()
            or RetryMessage.objects.using(using).exists()
        )

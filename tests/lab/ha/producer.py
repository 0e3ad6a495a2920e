"""Sends until it is ended, and notes what became of each message.

``python -m tests.lab.ha.producer NAME``. Every third one is sent in the transaction of its business
row. A note is ``acked``, ``unknown`` (the answer to the commit was lost) or ``failed``, the number
of the message, and the time.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection, transaction  # noqa: E402

from streams import SendOutcomeUnknown, StreamsError, send  # noqa: E402
from tests.lab.ha.models import Order  # noqa: E402
from tests.lab.ha.notes import Notes  # noqa: E402

TOPIC = "orders"
PAUSE_SECONDS = 0.1  # after an error


def send_one(name: str, n: int) -> str:
    """Return what is known of it then."""
    asked_to_commit = False
    try:
        if n % 3:
            send(TOPIC, [name, n], key=f"{name}:{n % 20}")
        else:
            with transaction.atomic():
                Order(producer=name, n=n).save(force_insert=True)
                send(TOPIC, [name, n], key=f"{name}:{n % 20}")
                asked_to_commit = True
    except SendOutcomeUnknown:
        return "unknown"
    except (DatabaseError, InterfaceError, StreamsError):
        with suppress(DatabaseError, InterfaceError):
            connection.close()
        return "unknown" if asked_to_commit else "failed"
    return "acked"


def main(name: str) -> None:
    notes = Notes("sent", name)
    n = 0
    while True:
        n += 1
        outcome = send_one(name, n)
        notes.add(outcome, name, n, time.monotonic())
        if outcome != "acked":
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])

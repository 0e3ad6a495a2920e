"""Two groups with an effect outside of the database, as a mail is: they note what they handle."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from streams import ReceivedMessage, consumer
from tests.lab.ha.notes import Notes

notes: list[Notes] = []


def note(messages: Sequence[ReceivedMessage]) -> None:
    if not notes:
        notes.append(Notes("handled", str(os.getpid())))
    for m in messages:
        notes[0].add(m.group, f"{m.partition}/{m.offset}", *m.body, time.monotonic())


@consumer("orders", group="mail", threads=2, consume_timeout=10)
def mail(message: ReceivedMessage) -> None:
    note([message])


@consumer("orders", group="stats", batch=50, consume_timeout=10)
def stats(messages: Sequence[ReceivedMessage]) -> None:
    note(messages)

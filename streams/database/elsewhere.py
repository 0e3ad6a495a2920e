"""Runs work on a second connection, committed even if the caller's transaction is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from streams.database.transactions import new_connection

T = TypeVar("T")


def elsewhere(using: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, where Django opens another connection for the same alias.

    Returns or raises what ``work`` returns or raises. It has the context of the caller, such as the
    span under which a message is sent.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            # The project may have AUTOCOMMIT off, and then nobody would commit the work.
            with new_connection(using):
                outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)

    thread = Thread(target=copy_context().run, args=(run,), name="ems-elsewhere", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]

"""Work on a connection of its own, committed whatever becomes of the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def elsewhere(using: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, where Django opens another connection for the same alias."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            # A project may have AUTOCOMMIT off: what is done here must not wait for its commit.
            connections[using].set_autocommit(True)
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)
        finally:
            connections[using].close()

    thread = Thread(target=run, name="ems-topic", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]

"""Runs the step that checks prepared messages, in a thread of its own: answers may take long."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from threading import Lock, Thread

from django.db import connections

from streams.database.retrying import retrying
from streams.logs import event
from streams.models.step import PREPARED
from streams.runtime_settings import system
from streams.steps.turns import is_turn, may_ask, rest
from streams.two_phase.checking import check_due
from streams.two_phase.claim import due

logger = logging.getLogger("streams.two_phase")

EVERY = timedelta(seconds=5)
# Seconds after which a run ends, so that other processes have their turn.
RUN_SECONDS = 60.0

_running: dict[str, tuple[Thread, float]] = {}
# By alias: a database that is away holds up no other.
_starting: dict[str, Lock] = {}
os.register_at_fork(after_in_child=_running.clear)
os.register_at_fork(after_in_child=_starting.clear)


def check_prepared_if_due(using: str) -> Thread | None:
    """Begin a round of checks in a thread, unless any process has in the last EVERY.

    The caller sweeps leases, and cannot wait for answers. Returns the thread, or None.
    """
    with _starting.setdefault(using, Lock()):
        if _is_busy(using) or not may_ask(PREPARED, using):
            return None
        # Looked at first: usually nothing is due, and then one read is enough.
        if not retrying(due, using, using):
            rest(PREPARED, using, EVERY)
            return None
        if not is_turn(PREPARED, EVERY, using):
            return None
        thread = Thread(target=_run, args=(using,), name="ems-checker", daemon=True)
        _running[using] = thread, time.monotonic()
        thread.start()
        return thread


def _is_busy(using: str) -> bool:
    """Tell whether a round runs here; say so once if it hangs."""
    thread, since = _running.get(using, (None, 0.0))
    if thread is None or not thread.is_alive():
        return False
    seconds = time.monotonic() - since
    if seconds > RUN_SECONDS + system("consumeTimeoutSeconds", using):
        _running[using] = thread, time.monotonic()
        logger.error(
            "The checks of prepared messages have run for %d s: a check-back hangs. Other"
            " processes go on",
            seconds,
            extra=event("prepared.hangs", database=using, seconds=int(seconds)),
        )
    return True


def _run(using: str) -> None:
    try:
        connections[using].set_autocommit(True)  # the project may have it off
        check_due(using, RUN_SECONDS)
    except Exception as error:
        logger.warning(
            "The checks of prepared messages failed: %s",
            error,
            exc_info=error,
            extra=event("step.failed", step=PREPARED, database=using, error=type(error).__name__),
        )
    finally:
        connections.close_all()

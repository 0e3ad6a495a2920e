"""Waits at the start of a consumer process until a database answers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import Error, connections

from streams.database.retrying import transient
from streams.logs import event
from streams.sharding import is_sharded

logger = logging.getLogger("streams.supervisor")

# Seconds between two tries to reach the database; the pause doubles up to the longest.
FIRST_PAUSE_SECONDS = 1
LONGEST_PAUSE_SECONDS = 30


def wait_for(using: str, stopped: Callable[[float], bool]) -> bool:
    """Wait until the database answers; return False if the process is to stop meanwhile.

    ``stopped`` rests for some seconds, and returns whether the process is to stop.

    A process manager gives up on a program that exits several times within seconds, as this one
    would while its server restarts.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            connections[using].ensure_connection()
        except Error as error:
            if not transient(error):
                raise
            say_away(using, error, pause)
            if stopped(pause):
                return False
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        else:
            return True


def say_away(using: str, error: Error, pause: float) -> None:
    """Write that the database cannot be used now, and when it is tried again."""
    logger.warning(
        "The database%s is unavailable (%s): trying again in %d s.",
        f" {using}" if is_sharded() else "",
        *(error, pause),
        extra=event("database.away", database=using),
    )

"""Notes that the database server has no connection left for some threads of this process."""

from __future__ import annotations

import logging
import threading

from streams.database.retrying import error_number
from streams.logs import event
from streams.process.shared.connections import KEEPER_PREFIX

logger = logging.getLogger("streams.supervisor")

# Of the server, of an account at one time, of an account by its limits.
NONE_LEFT = {1040, 1203, 1226}


class Shortage:
    """Which threads lack a connection, and says when the first one does, and when none does.

    The keepers come first: without the heartbeat's connection those of the workers are of no use.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._lacking: set[str] = set()

    @property
    def of_keepers(self) -> bool:
        """Tell whether a keeper lacks a connection, so that a worker is to give up its own."""
        if not self._lacking:
            return False
        with self._lock:
            return any(name.startswith(KEEPER_PREFIX) for name in self._lacking)

    def note(self, error: BaseException) -> bool:
        """Note that the calling thread lacks a connection, if ``error`` says so; return whether."""
        if error_number(error) not in NONE_LEFT:
            return False
        with self._lock:
            first = not self._lacking
            self._lacking.add(threading.current_thread().name)
        if first:
            logger.warning(
                "The server has no connection left (%s): going on with fewer threads, and trying"
                " again. It needs a higher max_connections, or this process fewer --threads.",
                error,
                extra=event("connections.exhausted", database=self._using),
            )
        return True

    def over(self) -> None:
        """Note that the calling thread has a connection, or needs none now."""
        if not self._lacking:
            return
        name = threading.current_thread().name
        with self._lock:
            last = self._lacking == {name}
            self._lacking.discard(name)
        if last:
            logger.info(
                "No thread lacks a connection any more.",
                extra=event("connections.restored", database=self._using),
            )

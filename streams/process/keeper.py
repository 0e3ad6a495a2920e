"""Defines the keeper: a thread that calls ``step() -> delay`` again and again until its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import DEFAULT_DB_ALIAS, Error, close_old_connections, connections, reset_queries

from streams.database.retrying import transient
from streams.logs import event
from streams.process.shared.connections import KEEPER_IDLE_SECONDS, KEEPER_PREFIX, work_on
from streams.process.shared.database_work import DatabaseWork
from streams.process.shared.shortage import Shortage
from streams.process.shared.stopping import Stopping

logger = logging.getLogger("streams.keeper")

AFTER_ERROR_SECONDS = 1.0


class Keeper(threading.Thread):
    """A thread that repeats a step, also in a slow drain, which must keep its leases."""

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        lifecycle: Stopping,
        shortage: Shortage,
        using: str = DEFAULT_DB_ALIAS,
    ) -> None:
        super().__init__(name=f"{KEEPER_PREFIX}{name}", daemon=True)
        self._step = step
        self._lifecycle = lifecycle
        self._shortage = shortage
        self._using = using
        self._condition = threading.Condition()
        self._woken = False
        self._ended = False
        self._work = DatabaseWork(using)

    @property
    def statements(self) -> int | None:
        """Return how many statements it has made; None between two steps."""
        return self._work.count

    def run(self) -> None:
        work_on(self._using)
        try:
            while not self._ended:
                started = time.monotonic()
                delay = self._guarded_step()
                # Wake-ups may come all the time: at most half of it is spent in steps, except when
                # a step wants to go on at once.
                rest = min(delay, time.monotonic() - started)
                if delay > KEEPER_IDLE_SECONDS / 2:
                    connections.close_all()  # before the server does
                with self._condition:
                    self._condition.wait_for(lambda: self._ended, rest)
                    self._condition.wait_for(lambda: self._woken or self._ended, delay - rest)
                    self._woken = False
        except BaseException as error:
            logger.exception(
                "The keeper %s failed",
                self.name,
                extra=event("keeper.failed", thread=self.name, error=type(error).__name__),
            )
            self._lifecycle.fail(f"keeper {self.name}: {error!r}")
        finally:
            connections.close_all()

    def wake(self) -> None:
        with self._condition:
            self._woken = True
            self._condition.notify()

    def end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify()

    def _guarded_step(self) -> float:
        close_old_connections()
        reset_queries()
        try:
            with self._work.under_way():
                connections[self._using].ensure_connection()
                self._shortage.over()
                return self._step()
        except Error as error:
            if not transient(error):
                raise
            if not self._shortage.note(error):
                logger.warning(
                    "%s: the database is unavailable: %s",
                    *(self.name, error),
                    extra=event("database.away", thread=self.name),
                )
            connections.close_all()
            return AFTER_ERROR_SECONDS

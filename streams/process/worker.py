"""Defines the worker thread, which takes one turn in its group after the other."""

from __future__ import annotations

import logging
import threading

from django.db import Error, close_old_connections, connections, reset_queries

from streams.consume.event_loop import with_event_loop
from streams.database.retrying import transient
from streams.errors import LeaseLost
from streams.logs import event
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.process.shared.connections import IdleLimit
from streams.process.shared.database_work import DatabaseWork
from streams.process.shared.in_flight import InFlight
from streams.process.shared.stopping import Stopping
from streams.process.turn import Turn
from streams.telemetry import count

logger = logging.getLogger("streams.worker")

# Seconds after which an idle worker looks by itself. The poller wakes it when there is something;
# more frequent looks of many idle threads would cost the database too much.
LOOK_SECONDS = 300.0
NOT_ALIVE_SECONDS = 0.2
AFTER_ERROR_SECONDS = 1.0


class Worker(threading.Thread):
    """Takes turns in one feed, and rests between them while there is nothing to do."""

    def __init__(
        self,
        feed: RunningGroup,
        number: int,
        *,
        kind: type[Turn] = Turn,
        client: Client,
        held: InFlight,
        lifecycle: Stopping,
        idle_limit: IdleLimit,
        using: str,
    ) -> None:
        super().__init__(name=f"{feed.registration.group}-{number}", daemon=True)
        self._feed = feed
        self._client = client
        self._held = held
        self._lifecycle = lifecycle
        self._idle_limit = idle_limit
        self._using = using
        self.turn = kind(
            feed,
            self.name,
            client=client,
            held=held,
            lifecycle=lifecycle,
            idle_limit=idle_limit,
            using=using,
        )
        self._database_work = DatabaseWork(using)

    @property
    def statements(self) -> int | None:
        """Return how many statements it has made; None while it waits or the handler runs."""
        return None if self.turn.calling else self._database_work.count

    @property
    def hangs(self) -> bool:
        """Tell whether the thread is in a call that is overdue by the grace."""
        return self.turn.hangs

    def run(self) -> None:
        try:
            if self._feed.registration.asynchronous:
                with_event_loop(self._work)
            else:
                self._work()
        except BaseException as error:
            logger.exception(
                "The worker %s failed",
                self.name,
                extra=event("worker.failed", **self._who(), error=type(error).__name__),
            )
            self._lifecycle.fail(f"worker {self.name}: {error!r}")
        finally:
            connections.close_all()

    def _work(self) -> None:
        while not self._lifecycle.stopping:
            delay = self.step()
            if delay:
                self._rest(delay)

    def _rest(self, seconds: float) -> None:
        """Wait for a wake-up; without one, close the connections before the server does.

        The server counts what it closes itself as an aborted client.
        """
        patience = self._idle_limit.patience
        if not self._feed.wait(min(seconds, patience)) and seconds > patience:
            connections.close_all()
            self._feed.wait(seconds - patience)

    def step(self) -> float:
        """Claim and handle one delivery; return how many seconds to wait for a wake-up after it."""
        close_old_connections()
        reset_queries()
        if not self._client.alive:
            return NOT_ALIVE_SECONDS
        try:
            with self._held.busy(), self._database_work.under_way():
                return 0.0 if self.turn.take() else LOOK_SECONDS
        except LeaseLost:
            count("ems_leases_lost_total", self._who()["topic"], self._who()["group"])
            logger.warning(
                "%s lost a lease: its outcome is not recorded",
                self.name,
                extra=event("lease.lost", **self._who()),
            )
            return 0.0
        except Error as error:
            if not transient(error):
                raise
            logger.warning(
                "%s: the database is unavailable: %s",
                *(self.name, error),
                extra=event("database.away", **self._who(), database=self._using),
            )
            connections[self._using].close()
            return AFTER_ERROR_SECONDS

    def _who(self) -> dict[str, str]:
        """Return what the log records of this worker have in common."""
        registration = self._feed.registration
        return {
            "topic": registration.topic,
            "group": registration.group,
            "client": self._client.client_id,
            "thread": self.name,
        }

"""Defines the worker thread: claim → handle → settle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, close_old_connections, connections, reset_queries

from streams.consume.claim import Claimer
from streams.consume.event_loop import with_event_loop
from streams.consume.handling import Handling
from streams.consume.limits import Limits
from streams.database.retrying import transient
from streams.errors import LeaseLost
from streams.logs import event
from streams.models import Delivery, RetryMessage
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.process.shared.connections import IdleLimit
from streams.process.shared.database_work import DatabaseWork
from streams.process.shared.in_flight import Held, InFlight, hung
from streams.process.shared.stopping import Stopping

logger = logging.getLogger("streams.worker")

# Seconds after which an idle worker looks by itself. The poller wakes it when there is something;
# more frequent looks of many idle threads would cost the database too much.
LOOK_SECONDS = 300.0
NOT_ALIVE_SECONDS = 0.2
AFTER_ERROR_SECONDS = 1.0


class Worker(threading.Thread):
    """Claims and handles messages of one feed in one thread."""

    def __init__(
        self,
        feed: RunningGroup,
        number: int,
        *,
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
        self._claimer = Claimer(feed.group, client.client_id, self.name, using)
        self._last_was_retry = False
        self._handling: Held | None = None
        self._database_work = DatabaseWork(using)

    @property
    def statements(self) -> int | None:
        """Return how many statements it has made; None while it waits or the handler runs."""
        handling = self._handling
        return None if handling is not None and handling.calling else self._database_work.count

    @property
    def hangs(self) -> bool:
        """Tell whether the thread is in a call that is overdue by the grace."""
        handling = self._handling
        return handling is not None and hung(handling)

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
                return self._step()
        except LeaseLost:
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

    def _step(self) -> float:
        limits = self._feed.limits()
        if limits is None:
            return LOOK_SECONDS
        self._idle_limit.allow(limits.consume_timeout)
        if self._lifecycle.stopping:
            return LOOK_SECONDS
        claimed = self._claim(limits)
        if claimed is None:
            return LOOK_SECONDS
        self._feed.wake()
        self._hand_over(*claimed, limits)
        return 0.0

    def _claim(self, limits: Limits) -> tuple[Delivery, RetryMessage | None] | None:
        """Claim a due retry or new messages, by turns while there are both."""
        self._claimer.client_id = self._client.client_id
        for retry_first in (not self._last_was_retry, self._last_was_retry):
            if retry_first:
                if retry := self._claimer.claim_retry(limits.consume_timeout):
                    self._last_was_retry = True
                    return retry
            elif new := self._claimer.claim(limits.batch, limits.consume_timeout):
                self._last_was_retry = False
                return new, None
        self._last_was_retry = False
        return None

    def _hand_over(self, delivery: Delivery, retry: RetryMessage | None, limits: Limits) -> None:
        gate = self._feed.gate
        alone = delivery.alone or (retry and retry.alone)
        handling = Handling(
            delivery,
            self._feed.registration,
            limits,
            retry=retry,
            may_go_on=self._may_go_on,
            beside=gate.alone if alone else gate.together,
        )
        try:
            with self._holding(handling):
                handling.run()
        finally:
            self._feed.add(handling.outcome)

    @contextmanager
    def _holding(self, handling: Held) -> Iterator[None]:
        """Let the heartbeat see what this thread holds, and ``hangs`` tell of its calls."""
        self._held.add(handling)
        self._handling = handling
        try:
            yield
        finally:
            self._handling = None
            self._held.discard(handling)

    def _who(self) -> dict[str, str]:
        """Return what the log records of this worker have in common."""
        registration = self._feed.registration
        return {
            "topic": registration.topic,
            "group": registration.group,
            "client": self._client.client_id,
            "thread": self.name,
        }

    def _may_go_on(self) -> bool:
        return self._client.alive and not self._lifecycle.stopping

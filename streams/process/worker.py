"""Defines a worker thread: it serves a group for one turn, and then the next group."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from django.db import Error, close_old_connections, connections, reset_queries

from streams.consume.event_loop import with_event_loop
from streams.database.retrying import transient
from streams.errors import LeaseLost
from streams.logs import event
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.broadcast.turn import BroadcastTurn
from streams.process.pool import LOOK_SECONDS, Wanted
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.connections import work_on
from streams.process.shared.database_work import DatabaseWork
from streams.process.turn import Turn
from streams.telemetry import count

logger = logging.getLogger("streams.worker")

NOT_ALIVE_SECONDS = 0.2
AFTER_ERROR_SECONDS = 1.0
# A resting thread looks this often whether a keeper lacks a connection.
SLICE_SECONDS = 1.0
# Between two tries to get a connection when the server has none left; the pause doubles up to this.
LONGEST_PAUSE_SECONDS = 30.0


class Worker(threading.Thread):
    """A thread that takes turns in the groups of the pool, and rests while all are idle."""

    def __init__(self, runtime: Runtime, number: int | str) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self._runtime = runtime
        self._pool = runtime.pool
        self._client = runtime.client
        self._lifecycle = runtime.lifecycle
        self._shortage = runtime.shortage
        self._using = runtime.using
        self._turns: dict[RunningGroup, Turn] = {}
        self._turn: Turn | None = None  # the one that is under way
        self._pause = AFTER_ERROR_SECONDS
        self._database_work = DatabaseWork(runtime.using)

    @property
    def statements(self) -> int | None:
        """Return how many statements it has made; None while it waits or the handler runs."""
        turn = self._turn
        return None if turn is not None and turn.calling else self._database_work.count

    @property
    def hangs(self) -> bool:
        """Tell whether the thread is in a call that is overdue by the grace."""
        turn = self._turn
        return turn is not None and turn.hangs

    def run(self) -> None:
        work_on(self._using)
        try:
            if any(feed.registration.asynchronous for feed in self._pool.feeds):
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
            self._turns.clear()  # their lanes end with them
            connections.close_all()

    def _work(self) -> None:
        while not self._lifecycle.stopping:
            delay = self.step()
            if delay is None:
                self._rest()
            elif delay:
                self._lifecycle.wait(delay)

    def _rest(self) -> None:
        """Wait for a wake-up; without one, close the connections before the server does.

        The server counts what it closes itself as an aborted client. A keeper that lacks a
        connection gets this one at once.
        """
        self._shortage.over()
        until = time.monotonic() + self._runtime.idle_limit.patience
        while not self._shortage.of_keepers and (left := until - time.monotonic()) > 0:
            if self._pool.wait(min(left, SLICE_SECONDS)):
                return
        connections.close_all()
        self._pool.wait(LOOK_SECONDS)

    def step(self) -> float | None:
        """Serve a group for one turn; return how many seconds to pause after it.

        None: no group has something to do.
        """
        wanted = self._pool.take()
        if wanted is None:
            return None
        feed = wanted.feed
        self._turn = self.turn_in(feed)
        found, delay = True, 0.0
        try:
            found, delay = self._serve(self._turn, wanted)
        finally:
            self._turn = None
            if wanted.call:
                self._runtime.arrivals.leave(wanted.call)
            self._pool.give_back(feed, again=found)
        if delay:
            self._pool.wake(feed)  # for another thread
        return delay

    def turn_in(self, feed: RunningGroup) -> Turn:
        """Return what this thread keeps between its turns in the group."""
        if feed not in self._turns:
            kind = BroadcastTurn if isinstance(feed, RunningBroadcastGroup) else Turn
            self._turns[feed] = kind(self._runtime, feed, self.name)
        return self._turns[feed]

    def _serve(self, turn: Turn, wanted: Wanted) -> tuple[bool, float]:
        """Take the turn; return whether the group may have more, and how many seconds to pause."""
        close_old_connections()
        reset_queries()
        if not self._client.alive:
            return True, NOT_ALIVE_SECONDS
        if self._shortage.of_keepers:
            connections[self._using].close()
            return True, AFTER_ERROR_SECONDS
        try:
            with self._runtime.activity.busy(), self._database_work.under_way():
                connections[self._using].ensure_connection()
                self._shortage.over()
                self._pause = AFTER_ERROR_SECONDS
                return turn.take(wanted), 0.0
        except LeaseLost:
            count(
                "ems_leases_lost_total",
                wanted.feed.registration.topic,
                wanted.feed.registration.group,
            )
            logger.warning(
                "%s lost a lease: its outcome is not recorded",
                self.name,
                extra=event("lease.lost", **self._who(wanted.feed)),
            )
            return True, 0.0
        except Error as error:
            if not transient(error):
                raise
            return True, self._without_database(error, wanted.feed)

    def _without_database(self, error: Error, feed: RunningGroup) -> float:
        """Say why the thread cannot work; return after how many seconds to try again."""
        connections[self._using].close()
        if self._shortage.note(error):
            pause = self._pause
            self._pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            return pause
        logger.warning(
            "%s: the database is unavailable: %s",
            *(self.name, error),
            extra=event("database.away", **self._who(feed), database=self._using),
        )
        return AFTER_ERROR_SECONDS

    def _who(self, feed: RunningGroup | None = None) -> dict[str, Any]:
        """Return what the log records of this worker have in common."""
        who = {"client": self._client.client_id, "thread": self.name}
        if feed:
            who |= {"topic": feed.registration.topic, "group": feed.registration.group}
        return who

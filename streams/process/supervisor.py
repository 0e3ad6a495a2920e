"""Defines the supervisor: what a consumer process runs for the groups on one database."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Thread

from django.db import Error, connections

from streams.conf import KEEPER_CONNECTIONS
from streams.consume.limits import Share, pool_size
from streams.consume.registry import Registration
from streams.errors import ConfigurationError
from streams.log import kept_ends
from streams.logs import event
from streams.process import feeds
from streams.process.deaths import Deaths
from streams.process.heartbeat import Heartbeat
from streams.process.keeper import Keeper
from streams.process.poller import ProcessPoller
from streams.process.progress import Progress
from streams.process.running_group import RunningGroup
from streams.process.runtime import Launch, Runtime
from streams.process.shared.connections import KEEPER_PREFIX, IdleLimit
from streams.process.shared.database_work import Silence
from streams.process.shared.progress_file import NoFile, ProgressFile, opened
from streams.process.worker import Worker
from streams.sharding import home_of, is_sharded
from streams.steps.gone_clients import GoneClients
from streams.steps.nightly_purge import purge_if_due
from streams.steps.of_apps import run_steps_of_apps
from streams.steps.sweep import SWEEP_EVERY, sweep, sweep_if_due
from streams.two_phase.pausing import may_check
from streams.wakeup import Listener

logger = logging.getLogger("streams.supervisor")

LOOK_SECONDS = 0.5
# The process stops when one of its threads has waited this many seconds for the database without an
# error, or the heartbeat, without which all leases end, for SILENT_SECONDS: the connection is dead,
# and a new process gets new connections. The time is counted in looks of the main thread, so the
# time that the process is frozen does not count.
WORK_SECONDS = 120.0
SILENT_SECONDS = 60.0
LEAVE_SECONDS = 5.0
# Seconds between two looks whether the nightly purge is due, and how many seconds of it to run
# between two sweeps.
PURGE_LOOK_SECONDS = 60.0
PURGE_SECONDS = 2.0


class Supervisor:
    """The workers and keepers of one database: ``begin``, ``start``, ``watch`` … ``leave``.

    The main thread calls all but ``begin``, the only one that works with the database: a database
    that does not answer holds up its own threads only.
    """

    def __init__(
        self,
        registrations: Sequence[Registration],
        using: str,
        launch: Launch | None = None,
        share: Share | None = None,
    ) -> None:
        if not registrations:
            raise ConfigurationError("There is no consumer to run.")
        launch = launch or Launch()
        share = share or Share(0, len(registrations), len(registrations))
        self._using = using
        self._idle_limit = IdleLimit(using)
        # Before the feeds are made: they create groups, which would never be committed if the
        # project has AUTOCOMMIT off.
        self._idle_limit.install()
        self._feeds: list[RunningGroup] = []
        self._workers: list[Worker] = []
        self._file: ProgressFile | NoFile = NoFile()
        try:
            self._feeds = feeds.make(registrations, using, launch, share)
            self._assemble(launch, share)
        except BaseException:
            self._undo()
            raise
        self._purge_at = self._maintain_at = 0.0
        self._silence = Silence()
        self._unanswered: set[Thread] = set()
        self._leaving: Thread | None = None
        self._leave_until = 0.0

    def _assemble(self, launch: Launch, share: Share) -> None:
        using = self._using
        # The thread of the checks needs one, while there is something to check. What says so may be
        # on another database, which need not answer now.
        self._checker_connections = int(home_of(using) != using or may_check(using))
        of_groups = [feed.threads for feed in self._feeds]
        self._threads = pool_size(of_groups, using, launch.overrides, share)
        self._progress = Progress(self._feeds)
        self._file = opened(using, self._threads)
        self._deaths = Deaths(using)
        self._runtime = runtime = Runtime.of(
            self._feeds, using, launch, self._idle_limit, self._file
        )
        self._client, self._lifecycle = runtime.client, runtime.lifecycle
        poller = ProcessPoller(runtime)
        self._poller = self._keeper("poller", poller.step)
        heartbeat = Heartbeat(runtime)
        self._lock, self._gone = heartbeat.lock, GoneClients(using)
        self._heartbeat = self._keeper("heartbeat", heartbeat.beat)
        self._maintenance = self._keeper("maintenance", self._look_after)
        self._keepers = [self._poller, self._heartbeat, self._maintenance]

        def wake_poller() -> None:
            poller.wake()
            self._poller.wake()

        runtime.arrivals.wake_poller = wake_poller
        topics = {feed.registration.topic for feed in self._feeds}
        self._listener = Listener(using, topics, runtime.arrivals.wake)

    @property
    def left_behind(self) -> bool:
        """Tell whether a thread still runs that would keep the process from ending."""
        return any(thread.is_alive() for thread in (*self._workers, *self._keepers))

    def budget(self) -> int:
        """Return how many connections this process uses at most to this database."""
        return self._threads + KEEPER_CONNECTIONS + self._checker_connections

    def _keeper(self, name: str, step: Callable[[], float]) -> Keeper:
        return Keeper(
            name + self._suffix, step, self._lifecycle, self._runtime.shortage, self._using
        )

    @property
    def _suffix(self) -> str:
        """Return the end of the names of its threads, which tells them from those of others."""
        return f"-{self._using}" if is_sharded() else ""

    def work(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the topic and name of each group, its threads, and its deliveries in hand."""
        in_hand = Counter(id(held.registration) for held in self._runtime.held.all())
        for feed in self._feeds:
            one = feed.registration
            yield one.topic, one.group, feed.threads, in_hand[id(one)]

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def begin(self) -> None:
        """Register this process in the groups, and say where they are."""
        try:
            self._client.register()
            self._progress.say_start()
        except BaseException:
            self._undo()
            raise
        logger.info(
            "Consumer %s%s: %d threads, up to %d database connections.",
            self._client.client_id,
            f" on {self._using}" if is_sharded() else "",
            *(self._threads, self.budget()),
            extra=event(
                "consumer.started",
                **self._who(),
                threads=self._threads,
                connections=self.budget(),
            ),
        )

    def start(self) -> None:
        """Start the threads, also when the process is stopping: then the workers end at once."""
        # Before the workers: a stop that comes after this is told to them.
        for feed in self._feeds:
            self._lifecycle.on_stop(feed.gate.end)
        self._lifecycle.on_stop(self._runtime.suspects.end)
        self._lifecycle.on_stop(self._runtime.pool.stop)
        self._workers = [
            Worker(self._runtime, f"{number}{self._suffix}") for number in range(self._threads)
        ]
        for thread in (*self._keepers, *self._workers):
            thread.start()
        self._listener.start()

    def watch(self) -> None:
        """Stop the process when the database no longer answers one of its threads.

        Called once in LOOK_SECONDS. The poller is woken when a claim takes long, to share it, and
        the maintenance when another process has died.
        """
        watched: list[Keeper | Worker] = [*self._keepers, *self._workers]
        for thread in watched:
            limit = SILENT_SECONDS if thread is self._heartbeat else WORK_SECONDS
            if self._silence.seconds(thread, LOOK_SECONDS) >= limit:
                self._unanswered.add(thread)
                self._lifecycle.fail_unanswered(thread.name, limit)
        if any(calls.can_share for calls in self._runtime.held.all()):
            self._poller.wake()
        if self._deaths.noticed():
            self._maintenance.wake()

    def _who(self) -> dict[str, str]:
        """Return what the log records of this supervisor have in common."""
        return {"client": self._client.client_id, "database": self._using}

    def _look_after(self) -> float:
        """Take what processes held that are dead or gone, and maintain what is due.

        What their files say comes before what is known without them, and others can have their
        messages at once.
        """
        if self._deaths.recover():
            self._poller.wake()
        pause = float("inf")
        if self._lock.held:
            if self._gone.step(self._client.client_id) and sweep(self._using):
                self._poller.wake()
            pause = self._gone.pause
        if time.monotonic() >= self._maintain_at:
            self._maintain_at = time.monotonic() + self._maintain()
        return max(0.0, min(self._maintain_at - time.monotonic(), pause))

    def _maintain(self) -> float:
        """Sweep, and do what else is due, in less than a lease from one sweep to the next.

        Each part has a limit of some seconds: the sweep, a slice of the purge, a step. So steps
        begin only until the next sweep is due.
        """
        began, every = time.monotonic(), SWEEP_EVERY.total_seconds()
        self._progress.step()
        sweep_if_due(self._using)
        swept = time.monotonic()  # a moment sooner the next sweep would not be due yet
        if swept >= self._purge_at:
            more = purge_if_due(self._using, PURGE_SECONDS)
            self._purge_at = time.monotonic() + (0.0 if more else PURGE_LOOK_SECONDS)
        run_steps_of_apps(self._using, began + every)
        kept_ends.of(self._using).keep_if_due()  # the last one, since a large file takes its time
        return max(0.0, swept + every - time.monotonic())

    @property
    def working(self) -> bool:
        """Tell whether a worker has not ended."""
        return any(worker.is_alive() for worker in self._workers)

    @property
    def draining(self) -> bool:
        """Tell whether a worker has not ended that does not hang."""
        return any(worker.is_alive() and not self._hangs(worker) for worker in self._workers)

    def _hangs(self, worker: Worker) -> bool:
        return worker.hangs or worker in self._unanswered

    def leave(self) -> None:
        """Begin to end the keepers, which have kept the leases until now, and to deregister."""
        if self._leaving:
            return
        self._listener.stop()
        for keeper in self._keepers:
            keeper.end()
        # In a thread that is left after LEAVE_SECONDS: without a network it would never return.
        name = f"{KEEPER_PREFIX}leave{self._suffix}"
        self._leaving = Thread(target=self._take_leave, name=name, daemon=True)
        self._leaving.start()
        self._leave_until = time.monotonic() + LEAVE_SECONDS

    def end(self) -> None:
        """Wait for the end of what ``leave`` has begun, and say what was done."""
        for thread in (*self._keepers, *filter(None, [self._leaving])):
            thread.join(timeout=max(0.0, self._leave_until - time.monotonic()))
        self._progress.say_end()
        # Whoever finds it when the process has ended knows which calls were left.
        self._file.close(keep=self.working)
        self._close_broadcasts()
        if not self.left_behind and not (self._leaving and self._leaving.is_alive()):
            self._idle_limit.remove()

    def _undo(self) -> None:
        """Undo what was made, so that another supervisor can be made for this database."""
        self._file.close()
        self._close_broadcasts()
        self._idle_limit.remove()

    def _close_broadcasts(self) -> None:
        """Free the names of the broadcast consumers if all workers have ended.

        Otherwise the operating system frees the names when the process ends.
        """
        if not self.working:
            feeds.close(self._feeds)

    def _take_leave(self) -> None:
        try:
            # Its last beat would find no client, and register another one.
            self._heartbeat.join(LEAVE_SECONDS)
            self._deregister()
            self._poller.join(LEAVE_SECONDS)  # it gives no offset after this
            with suppress(Error):  # what was kept some seconds ago has to do
                kept_ends.of(self._using).keep(kept_ends.PATIENCE_SECONDS)
        finally:
            connections.close_all()

    def _deregister(self) -> None:
        try:
            self._client.deregister()
        except Exception:
            logger.exception(
                "Cannot deregister; the lease will expire by itself",
                extra=event("consumer.not_deregistered", **self._who()),
            )

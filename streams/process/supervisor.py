"""Defines the supervisor, which runs in the main thread of a consumer process."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Thread

from django.db import connections
from django.utils.translation import gettext as _

from streams.conf import KEEPER_CONNECTIONS, settings
from streams.consume.limits import Overrides, pool_size
from streams.consume.registry import Registration
from streams.errors import ConfigurationError, StreamsError
from streams.logs import event
from streams.models import Mode
from streams.process.broadcast.file import DEFAULT_NAME
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.heartbeat import Heartbeat
from streams.process.keeper import Keeper
from streams.process.poller import Poller
from streams.process.pool import Pool
from streams.process.progress import Progress
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.process.shared.connections import KEEPER_PREFIX, IdleLimit
from streams.process.shared.in_flight import InFlight
from streams.process.shared.shortage import Shortage
from streams.process.shared.signals import Signals
from streams.process.shared.stopping import Stopping
from streams.process.worker import Worker
from streams.steps.nightly_purge import purge_if_due
from streams.steps.of_apps import run_steps_of_apps
from streams.steps.sweep import SWEEP_EVERY, sweep_if_due
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
    """Starts workers and keepers, waits for a signal or a failure, and stops workers first."""

    def __init__(
        self,
        registrations: Sequence[Registration],
        using: str,
        *,
        overrides: Overrides = Overrides(),  # noqa: B008 - immutable
        drain: bool = False,
        client: str = DEFAULT_NAME,
        signals: Signals | None = None,
    ) -> None:
        if not registrations:
            raise ConfigurationError("There is no consumer to run.")
        self._using = using
        self._lifecycle = Stopping()
        self._signals = signals or Signals()
        self._idle_limit = IdleLimit(using)
        # Before the feeds are made: they create groups, which would never be committed if the
        # project has AUTOCOMMIT off.
        self._idle_limit.install()
        self._feeds = _feeds(registrations, using, overrides, client)
        for feed in self._feeds:
            self._idle_limit.allow(feed.consume_timeout())
        # The thread of the checks needs one, while there is something to check.
        self._checker_connections = int(may_check(using))
        self._threads = pool_size([feed.threads for feed in self._feeds], using, overrides)
        self._progress = Progress(self._feeds)
        self._client = Client([feed.group.pk for feed in self._feeds], using)
        self._held = InFlight()
        self._shortage = Shortage(using)
        heartbeat = Heartbeat(self._client, self._held, self._lifecycle, self._feeds)
        self._pool = Pool(self._feeds)
        poller = Poller(self._pool, self._held, self._lifecycle, using, drain=drain)
        self._poller = self._keeper("poller", poller.step)
        self._heartbeat = self._keeper("heartbeat", heartbeat.step)
        self._keepers = [
            self._poller,
            self._heartbeat,
            self._keeper("maintenance", self._maintain),
        ]

        def wake() -> None:
            poller.wake()
            self._poller.wake()

        topics = {feed.registration.topic for feed in self._feeds}
        self._listener = Listener(using, topics, wake)
        self._workers: list[Worker] = []
        self._purge_at = 0.0
        # For each thread how many statements it has made, and the seconds since the last one.
        self._seen: dict[Thread, tuple[int | None, float]] = {}
        self._unanswered: set[Thread] = set()

    def run(self) -> int:
        """Run until stopped; return the exit status.

        It is 0, or 1 after a failure or if handlers were left running.
        """
        self._signals.install()
        try:
            return self._run()
        finally:
            self._signals.restore()

    @property
    def left_behind(self) -> bool:
        """Tell whether a thread still runs that would keep the process from ending."""
        return any(thread.is_alive() for thread in (*self._workers, *self._keepers))

    def budget(self) -> int:
        """Return how many database connections this process uses at most."""
        return self._threads + KEEPER_CONNECTIONS + self._checker_connections

    def _keeper(self, name: str, step: Callable[[], float]) -> Keeper:
        return Keeper(name, step, self._lifecycle, self._shortage, self._using)

    def work(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the topic and name of each group, its threads, and its deliveries in hand."""
        in_hand = Counter(id(held.registration) for held in self._held.all())
        for feed in self._feeds:
            one = feed.registration
            yield one.topic, one.group, feed.threads, in_hand[id(one)]

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def _run(self) -> int:
        self._client.register()
        self._start()
        connections.close_all()  # this thread uses them no more, so the server would close them
        while not self._lifecycle.stopping:
            if self._signals.wait(LOOK_SECONDS):
                logger.info(
                    "Stopping: finishing what runs.",
                    extra=event("consumer.stopping", **self._who()),
                )
                self._lifecycle.stop()
            self._watch()
        drained = self._drain()
        self._end()
        if self._lifecycle.failure:
            logger.error(
                "Stopped after a failure: %s",
                self._lifecycle.failure,
                extra=event("consumer.failed", **self._who(), error=self._lifecycle.failure),
            )
        else:
            logger.info("Stopped.", extra=event("consumer.stopped", **self._who()))
        return 0 if drained and not self._lifecycle.failure else 1

    def _start(self) -> None:
        for feed in self._feeds:
            self._lifecycle.on_stop(feed.gate.end)
        self._lifecycle.on_stop(self._pool.stop)
        self._workers = [
            Worker(
                self._pool,
                number,
                client=self._client,
                held=self._held,
                lifecycle=self._lifecycle,
                idle_limit=self._idle_limit,
                shortage=self._shortage,
                using=self._using,
            )
            for number in range(self._threads)
        ]
        self._progress.say_start()
        logger.info(
            "Consumer %s: %d threads, up to %d database connections.",
            *(self._client.client_id, self._threads, self.budget()),
            extra=event(
                "consumer.started",
                **self._who(),
                threads=self._threads,
                connections=self.budget(),
            ),
        )
        for thread in (*self._keepers, *self._workers):
            thread.start()
        self._listener.start()

    def _watch(self) -> None:
        """Stop the process when the database answers one of its threads no more."""
        watched: list[Keeper | Worker] = [*self._keepers, *self._workers]
        for thread in watched:
            count = thread.statements
            before, silent = self._seen.get(thread, (None, 0.0))
            silent = silent + LOOK_SECONDS if count is not None and count == before else 0.0
            self._seen[thread] = count, silent
            limit = SILENT_SECONDS if thread is self._heartbeat else WORK_SECONDS
            if silent >= limit:
                self._unanswered.add(thread)
                self._lifecycle.fail(
                    f"the database has not answered the thread {thread.name} for {limit:.0f} s"
                )

    def _who(self) -> dict[str, str]:
        return {"client": self._client.client_id, "database": self._using}

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
        return max(0.0, swept + every - time.monotonic())

    def _drain(self) -> bool:
        """Wait for the workers, but not for one that hangs; return whether all have ended.

        It ends sooner at a second signal, or after DRAIN_SECONDS.
        """
        limit = time.monotonic() + settings().DRAIN_SECONDS
        while any(worker.is_alive() and not self._hangs(worker) for worker in self._workers):
            if self._signals.wait(0.05):
                logger.warning(
                    "A second signal: ending at once. The sweep retries the rest.",
                    extra=event("consumer.left", **self._who()),
                )
                return False
            if time.monotonic() > limit:
                logger.warning(
                    "Handlers still run after DRAIN_SECONDS: ending without them.",
                    extra=event("consumer.left", **self._who()),
                )
                return False
        return not any(worker.is_alive() for worker in self._workers)

    def _hangs(self, worker: Worker) -> bool:
        return worker.hangs or worker in self._unanswered

    def _end(self) -> None:
        """End the keepers, which have kept the leases while the workers drained, and deregister."""
        self._listener.stop()
        for keeper in self._keepers:
            keeper.end()
        # In a thread that is left after LEAVE_SECONDS: without a network it would never return.
        leave = Thread(target=self._deregister, name=f"{KEEPER_PREFIX}leave", daemon=True)
        leave.start()
        limit = time.monotonic() + LEAVE_SECONDS
        for thread in (*self._keepers, leave):
            thread.join(timeout=max(0.0, limit - time.monotonic()))
        self._progress.say_end()
        self._close_broadcasts()

    def _close_broadcasts(self) -> None:
        """Free the names of the broadcast consumers if all workers have ended.

        Otherwise the operating system frees the names when the process ends.
        """
        for feed in self._feeds:
            if isinstance(feed, RunningBroadcastGroup) and not any(
                worker.is_alive() for worker in self._workers
            ):
                feed.close()

    def _deregister(self) -> None:
        try:
            self._client.deregister()
        except Exception:
            logger.exception(
                "Cannot deregister; the lease will expire by itself",
                extra=event("consumer.not_deregistered", **self._who()),
            )
        finally:
            connections.close_all()


def _feeds(
    registrations: Sequence[Registration], using: str, overrides: Overrides, client: str
) -> list[RunningGroup]:
    """Return the feeds of ``registrations``, without those that cannot run, and say which.

    If all fail, the error of the only one or ConfigurationError is raised.
    """
    if len(registrations) > 1:
        overrides = replace(overrides, threads=None)  # they are shared
    feeds: list[RunningGroup] = []
    try:
        for registration in registrations:
            try:
                if registration.mode == Mode.BROADCAST:
                    feeds.append(RunningBroadcastGroup(registration, using, overrides, client))
                else:
                    feeds.append(RunningGroup(registration, using, overrides))
            except StreamsError as error:
                if len(registrations) == 1:
                    raise
                logger.error(
                    "%s on %s is left out: %s",
                    *(registration.group, registration.topic, error),
                    extra=event(
                        "group.left_out",
                        group=registration.group,
                        topic=registration.topic,
                        error=type(error).__name__,
                        database=using,
                    ),
                )
    except BaseException:
        for feed in feeds:
            if isinstance(feed, RunningBroadcastGroup):
                feed.close()
        raise
    if not feeds:
        raise ConfigurationError(_("No group can run: see the errors above."))
    return feeds

"""Runs the thread that looks for what requests wait for, and moves the log while clients pull."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from django.db import Error, connections, reset_queries

from streams.conf import settings
from streams.database.retrying import transient
from streams.database.transactions import in_test_case
from streams.deliver.poller import Look, Poller
from streams.errors import StreamsError
from streams.http.pulling.groups import PulledGroup, pulled
from streams.http.pulling.waiting import waiting
from streams.log import ends, kept_ends
from streams.logs import event
from streams.steps.sequence import NOTE_EVERY, note_sequencing
from streams.steps.sweep import SWEEP_EVERY, sweep_if_due
from streams.wakeup import Listener

logger = logging.getLogger("streams.http")

NAME = "ems-http-poller"
# The thread ends so many seconds after the last pull.
LINGER_SECONDS = 60.0
AFTER_ERROR_SECONDS = 1.0


class PullPoller(threading.Thread):
    """Sequences, sweeps, and wakes one waiting request of each group that has something to claim.

    So a project whose consumers only pull needs neither ems_consume nor Celery's beat for it.
    """

    def __init__(self, using: str) -> None:
        super().__init__(name=_name(using), daemon=True)
        self.using = self._using = using
        self._waiting = waiting(using)
        self._condition = threading.Condition()
        self._woken = False
        self.stopped = False
        self.used_at = time.monotonic()
        self._poller = Poller(using)
        self._ends: dict[int, int] = {}  # by partition: the end that the last look has known
        self._note_at = self._sweep_at = 0.0
        self._listener: Listener | None = None

    def wake(self) -> None:
        """Let it look now: something was sent, perhaps to a new topic."""
        self._poller.wake()
        with self._condition:
            self._woken = True
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self.stopped = True
            self._condition.notify()

    def run(self) -> None:
        try:
            while not (self.stopped or _ends(self)):
                started = time.monotonic()
                delay = self._guarded(self.step)
                ended = time.monotonic()
                self._guarded(self.maintain)
                with self._condition:
                    # Wake-ups may come all the time: at most half of it is spent in steps, except
                    # when a step wants to go on at once.
                    self._wait(lambda: self.stopped, ended + min(delay, ended - started))
                    self._wait(lambda: self._woken or self.stopped, ended + delay)
        finally:
            if self._listener:
                self._listener.stop()
            connections.close_all()

    def _wait(self, condition: Callable[[], bool], until: float) -> None:
        self._condition.wait_for(condition, max(0.0, until - time.monotonic()))

    def _guarded(self, work: Callable[[], float]) -> float:
        reset_queries()
        try:
            if self._listener is None:
                self._listener = Listener(
                    self._using, self._waiting.topics, lambda _topics: self.wake()
                )
                self._listener.start()
            return work()
        except Exception as error:
            connections.close_all()
            if isinstance(error, Error) and transient(error):
                logger.warning(
                    "%s: the database is unavailable: %s",
                    *(self.name, error),
                    extra=event("database.away", thread=self.name),
                )
            else:  # the requests wait, so it goes on
                logger.exception(
                    "%s failed",
                    self.name,
                    extra=event("http.poller_failed", error=type(error).__name__),
                )
            return AFTER_ERROR_SECONDS

    def step(self) -> float:
        """Look once; return how many seconds to wait until the next look."""
        with self._condition:
            self._woken = False
        groups = [group.group.pk for group in self._waiting.groups()]
        look = self._poller.look(groups)
        pause = self._poller.pause(look, woken=self._wake(look))
        return min([pause, *self._held_for()])

    def maintain(self) -> float:
        """Do what is due beside the looks. It is done after them, so that no wake-up waits."""
        now = time.monotonic()
        self._waiting.let_go()
        if now >= self._note_at:
            self._note_at = now + NOTE_EVERY.total_seconds()
            note_sequencing(self._using)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY.total_seconds()
            sweep_if_due(self._using)
        kept_ends.of(self._using).keep_if_due()
        return 0.0

    def _wake(self, look: Look) -> bool:
        reached = {id_: log.offset for id_, log in look.due.logs.items()}
        # What has been sequenced since the look comes after the end that it has read.
        reached |= {
            id_: end.offset for id_ in look.done.partitions if (end := ends.end(id_, self._using))
        }
        grown = {id_ for id_, end in reached.items() if end > self._ends.get(id_, -1)}
        self._ends = reached
        topics = {topic_id for topic_id, id_ in self._poller.partitions if id_ in grown}
        # Those who wait now: who came during the look may have claimed before the log grew.
        woken = []
        for group in self._waiting.groups():
            news = group.group.topic_id in topics
            if (news or group.group.pk in look.due.groups) and self._open(group):
                woken.append(self._waiting.wake_group(group.group.pk, news=news))
        return any([*woken, self._waiting.wake_readers(reached.items())])

    def _held_for(self) -> list[float]:
        """Return for how many seconds the rates of the groups hold back what requests wait for."""
        now = time.monotonic()
        ends = [group.held_until - now for group in self._waiting.groups()]
        return [seconds for seconds in ends if seconds > 0]

    def _open(self, group: PulledGroup) -> bool:
        """Tell whether anything may be handed out.

        The group is not paused, its topic is readable, and its rate lets something begin.
        """
        place = group.group
        try:
            now = pulled(place.topic.name, place.name, self._using)
            return now.limits is not None and time.monotonic() >= now.held_until
        except StreamsError:
            return True  # the group is gone: tell who waits for it


# By alias: each database has a thread, so one that is away holds up no other.
_pollers: dict[str, PullPoller] = {}
_starting = threading.Lock()


def _name(using: str) -> str:
    return NAME if using == settings().DATABASE else f"{NAME}-{using}"


def ensure(using: str) -> None:
    """Let the thread run for LINGER_SECONDS from now; in a TestCase nobody else sees anything."""
    if in_test_case(using):
        return
    with _starting:
        poller = _pollers.get(using)
        if poller is None or not poller.is_alive():
            poller = _pollers[using] = PullPoller(using)
            poller.start()
        poller.used_at = time.monotonic()


def wake(using: str) -> None:
    """Let the thread of ``using`` look now, if it runs."""
    if (poller := _pollers.get(using)) is not None:
        poller.wake()


def stop() -> None:
    """End the threads, and wait for their end."""
    with _starting:
        pollers = [*_pollers.values()]
        _pollers.clear()
    for poller in pollers:
        poller.stop()
    for poller in pollers:
        poller.join()


def _ends(poller: PullPoller) -> bool:
    """Tell whether nobody has needed the thread for long; a later pull then starts another."""
    with _starting:
        if waiting(poller.using) or time.monotonic() < poller.used_at + LINGER_SECONDS:
            return False
        if _pollers.get(poller.using) is poller:
            del _pollers[poller.using]
        return True


def _forget() -> None:
    """Forget the threads in a child process: a fork has only the one that called it."""
    global _starting
    _pollers.clear()
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forget)

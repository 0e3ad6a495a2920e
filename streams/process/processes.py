"""Runs consumer processes under one parent, which starts those again that end."""

from __future__ import annotations

import atexit
import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from django.db import connections

from streams.conf import settings
from streams.logs import event
from streams.process.shared.life_signs import Beats, LifeSigns
from streams.process.shared.signals import END, STOP_REQUEST, Signals

logger = logging.getLogger("streams.supervisor")

# The exit status of a process that would fail again in the same way: its configuration is wrong.
CONFIGURATION_STATUS = 78
LOOK_SECONDS = 0.2
# The statuses of a process that a request to stop has ended before it listened.
ENDED_BY_REQUEST = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
# Before a process that has ended is started again: none the first time, then this one, doubled up
# to the longest; none again for one that has lived for LONG_LIFE_SECONDS.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
LONG_LIFE_SECONDS = 60.0
# Beyond DRAIN_SECONDS, after which a process that was asked to end is killed.
KILL_GRACE_SECONDS = 15.0


@dataclass
class Place:
    """What the parent knows of one of its processes."""

    number: int  # from 1
    pid: int = 0  # while it runs
    pipe: int = -1  # what the parent writes to; the process ends when it is closed
    started_at: float = 0.0
    start_at: float = 0.0
    pause: float = 0.0
    again: bool = False  # whether it has run before
    done: bool = False


class Processes:
    """``count`` forked processes, which call ``work`` and exit with what it returns.

    It gets the number of the process, a pipe for Signals, which tells it to stop, also when the
    parent was killed, and whether it is started again.
    The parent has no connection and makes no thread, so a fork copies neither. With ``drain`` a
    process that ends is not started again. When one has died, ``recover`` is called in a process of
    its own, to end what that one had claimed. It may be killed at any moment. ``signs`` of life are
    shown while the parent and all its processes turn, which say so in ``beats``.
    """

    def __init__(
        self,
        count: int,
        work: Callable[[int, int, bool], int],
        *,
        drain: bool,
        recover: Callable[[], object],
        beats: Beats | None = None,
        signs: LifeSigns = LifeSigns(),  # noqa: B008 - it shows nothing
    ) -> None:
        self._work = work
        self._recover = recover
        self._recovering: set[int] = set()
        self._drain = drain
        self._places = [Place(number + 1) for number in range(count)]
        self._signals = Signals()
        self._beats = beats
        self._signs = signs
        self._status = 0
        self._stopping = False
        self._kill_at = 0.0

    def run(self) -> int:
        """Run until stopped, or until all have ended; return the exit status.

        It is 1 if a process has failed that is not started again, or one did not end as it should.
        """
        self._signals.install()
        connections.close_all()  # the system checks may have opened some
        # What the start has made stays. A full collection that looked at it would stop all threads
        # for 100 ms, and write to the memory that the processes share.
        gc.freeze()
        try:
            while not self._stopping and not all(place.done for place in self._places):
                self._start_due()
                if self._signals.wait(LOOK_SECONDS):
                    if len(self._places) > 1:  # a single one says so itself
                        logger.info(
                            "Stopping %d processes: they finish what runs.",
                            len(self._running()),
                            extra=event("processes.stopping", count=len(self._running())),
                        )
                    self._stop()
                self._look()
            self._wait()
            return self._status
        finally:
            self._signals.restore()

    def _running(self) -> list[Place]:
        return [place for place in self._places if place.pid]

    def _start_due(self) -> None:
        for place in self._places:
            if not place.pid and not place.done and time.monotonic() >= place.start_at:
                self._start(place)

    def _start(self, place: Place) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        if self._beats:
            self._beats.beat(place.number)  # it turns as soon as it can
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            self._be(place, reader)
        os.close(reader)
        place.pid, place.pipe, place.started_at = pid, writer, time.monotonic()
        if len(self._places) > 1:
            logger.info(
                "Process %d is %d.",
                *(place.number, pid),
                extra=event("process.started", process=place.number, pid=pid),
            )

    def _be(self, place: Place, parent: int) -> NoReturn:
        """Be the process at ``place``, to its end."""
        status = 1
        try:
            self._close_pipes()
            if len(self._places) > 1:
                multiprocessing.current_process().name = f"process-{place.number}"
            status = self._work(place.number, parent, place.again)
        finally:
            atexit._run_exitfuncs()  # such as the last export of a telemetry client
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _close_pipes(self) -> None:
        """Close the pipes to the others: with them, these would not notice the parent's death."""
        for place in self._running():
            os.close(place.pipe)

    def _start_recovery(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                self._close_pipes()
                self._recover()
            except BaseException:  # noqa: BLE001 - the end of the lease does it
                traceback.print_exc()
            finally:
                os._exit(0)
        self._recovering.add(pid)

    def _look(self) -> None:
        """Take note of the processes that have ended, and show that the others turn."""
        self._recovering = {one for one in self._recovering if not os.waitpid(one, os.WNOHANG)[0]}
        for place in self._running():
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                self._note_end(place, os.waitstatus_to_exitcode(status))
        if beats := self._beats:
            if not any(beats.hangs(place.number) for place in self._running()):
                self._signs.beat()
            if beats.are_ready:
                self._signs.ready()

    def _note_end(self, place: Place, status: int) -> None:
        pid, place.pid, place.again = place.pid, 0, True
        os.close(place.pipe)
        if status not in (0, CONFIGURATION_STATUS):
            self._start_recovery()
        if self._stopping or (self._drain and not status):
            place.done = True
            # A signal to all of them ends one that has not begun to listen: it has nothing to do.
            self._status = self._status or int(status not in (0, *ENDED_BY_REQUEST))
            return
        if self._drain or status == CONFIGURATION_STATUS:
            place.done, self._status = True, 1
            logger.error(
                "Process %d (%d) has failed for good: %s",
                *(place.number, pid, _meaning(status)),
                extra=event("process.failed", process=place.number, pid=pid, status=status),
            )
            if not self._drain:
                self._stop()
            return
        if time.monotonic() - place.started_at >= LONG_LIFE_SECONDS:
            place.pause = 0.0
        logger.warning(
            "Process %d (%d) has ended: %s. It is started again in %d s.",
            *(place.number, pid, _meaning(status), place.pause),
            extra=event("process.ended", process=place.number, pid=pid, status=status),
        )
        place.start_at = time.monotonic() + place.pause
        place.pause = min(max(FIRST_PAUSE_SECONDS, 2 * place.pause), LONGEST_PAUSE_SECONDS)

    def _stop(self) -> None:
        self._stopping = True
        self._signs.stopping()
        self._kill_at = time.monotonic() + settings().DRAIN_SECONDS + KILL_GRACE_SECONDS
        self._tell(STOP_REQUEST)

    def _tell(self, what: bytes) -> None:
        for place in self._running():
            with suppress(BrokenPipeError):  # it has just ended
                os.write(place.pipe, what)

    def _wait(self) -> None:
        """Wait until all have ended; kill those that do not."""
        if not self._stopping:
            self._kill_at = time.monotonic() + KILL_GRACE_SECONDS
        while self._running() or self._recovering:
            if self._signals.wait(LOOK_SECONDS):
                self._tell(END)
            self._look()
            if time.monotonic() >= self._kill_at:
                for pid in (*(place.pid for place in self._running()), *self._recovering):
                    os.kill(pid, signal.SIGKILL)
                self._kill_at = float("inf")


def _meaning(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"

"""Keeps one database fresh: holds its lock and does its duties, or waits for the lock."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected
from sparkjobs.errors import Busy
from sparkjobs.lock import NIGHTS, SERVE, alone
from sparkjobs.resident.duty import FIRST_PAUSE, Duty
from sparkjobs.resident.health import ServiceHealth
from sparkjobs.resident.spark import Resident
from sparkjobs.resident.stopping import DRAIN_SECONDS, StopSignal

# Seconds: how often a standby looks whether it can take over, and the first pause after an error.
STANDBY_SECONDS, PAUSE_SECONDS = 10.0, 2.0
# After so many failures in a row a duty gets a new JVM.
FAILURES_OF_A_JVM = 3
# Seconds, far beyond what a look at a database takes that answers. One that hangs must not hold up
# the others for longer.
LOOK_LIMIT = 300

STANDBY, ERROR = "standby", "error"

Say = Callable[[str], None]


class DutyKeeper:
    """A loop that does at each ``step`` what is due, and at ``next_at`` again.

    Neither a failed duty nor a lost database ends it. It lets the lock go at ``end``.
    """

    def __init__(
        self,
        config: Config,
        duties: Sequence[Duty],
        resident: Resident,
        stopping: StopSignal,
        say: Say,
    ) -> None:
        self.config = config
        self.next_at = 0.0
        self._duties = duties
        self._resident = resident
        self._stopping = stopping
        self._say = say
        self._held: ExitStack | None = None
        self._pause, self._said = PAUSE_SECONDS, ""

    @property
    def is_standby(self) -> bool:
        """Tell whether another process keeps the database fresh."""
        return self._said == STANDBY

    def step(self) -> None:
        self._limit(LOOK_LIMIT)
        try:
            if self._held is None:
                self._begin()
            self._work()
        except Busy:
            self.end()
            if not self.is_standby:
                self._say("serve: another one is at work; this one waits to take over")
            self._said = STANDBY
            self.next_at = time.monotonic() + STANDBY_SECONDS
        except Exception as error:  # noqa: BLE001 - the driver's, of a database that is away
            self.end()
            self._say(f"serve: {type(error).__name__}: {error}; again in {self._pause:.0f} s")
            self._said = ERROR
            self.next_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, FIRST_PAUSE)
        finally:
            self._limit(0)

    def end(self) -> None:
        """Let the lock go, if it is held, and end the row of the table of runs."""
        held, self._held = self._held, None
        if held is not None:
            with suppress(Exception):  # the database may be what has failed
                held.close()

    def _begin(self) -> None:
        with ExitStack() as stack:
            self._still_alone = stack.enter_context(alone(self.config, SERVE))
            stack.enter_context(alone(self.config, self.config.own(NIGHTS)))
            self._connection: Connection = stack.enter_context(connected(self.config))
            self._health = ServiceHealth(self._connection)
            stack.callback(self._health.ended)
            self._held = stack.pop_all()
        self._pause, self._said = PAUSE_SECONDS, ""
        self._say("serve: at work")

    def _work(self) -> None:
        self._still_alone()
        for duty in self._duties:
            if not self._stopping.is_asked() and duty.next_at <= time.monotonic():
                self._do(duty)
        self._health.looked("\n".join(duty.error for duty in self._duties if duty.error))
        soonest = min(duty.next_at for duty in self._duties)
        self.next_at = max(time.monotonic() + 1.0, soonest)

    def _do(self, duty: Duty) -> None:
        began = time.monotonic()
        try:
            if duty.is_due(self._connection):
                self._limit(duty.limit)
                duty.work()
            duty.done(began)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other duties go on
            duty.failed(time.monotonic(), error)
            self._say(duty.error)
            if duty.failures % FAILURES_OF_A_JVM == 0:
                self._resident.end()
        finally:
            self._limit(LOOK_LIMIT)

    def _limit(self, seconds: int) -> None:
        """End the process after so many seconds; 0 is never."""
        signal.alarm(seconds)
        if self._stopping.is_asked():
            signal.alarm(DRAIN_SECONDS)

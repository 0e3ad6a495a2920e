"""Does the duties in turn, in one process at a time; the others wait to take over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected
from sparkjobs.errors import Busy
from sparkjobs.lock import SERVE, alone
from sparkjobs.resident.duty import FIRST_PAUSE, Duty
from sparkjobs.resident.health import Health
from sparkjobs.resident.spark import Resident
from sparkjobs.resident.stopping import DRAIN_SECONDS, Stopping

# Seconds: how often a standby looks whether it can take over, and the first pause after an error.
STANDBY_SECONDS, PAUSE_SECONDS = 10.0, 2.0
# After so many failures in a row a duty gets a new JVM.
FAILURES_OF_A_JVM = 3

Say = Callable[[str], None]


class Service:
    """Runs until SIGTERM. Neither a failed duty nor a lost database ends it."""

    def __init__(
        self, config: Config, duties: Sequence[Duty], resident: Resident, say: Say
    ) -> None:
        self._config = config
        self._duties = duties
        self._resident = resident
        self._say = say
        self._stopping = Stopping()

    def run(self) -> None:
        self._stopping.install()
        pause, said = PAUSE_SECONDS, ""
        while not self._stopping.is_asked():
            try:
                with alone(self._config, SERVE) as still_alone:
                    pause, said = PAUSE_SECONDS, ""
                    self._say("serve: at work")
                    self._work(still_alone)
            except Busy:
                self._resident.end()  # a standby needs no JVM
                if said != "standby":
                    self._say("serve: another one is at work; this one waits to take over")
                said = "standby"
                self._stopping.wait(STANDBY_SECONDS)
            except Exception as error:  # noqa: BLE001 - the driver's, of a database that is away
                self._say(f"serve: {type(error).__name__}: {error}; again in {pause:.0f} s")
                said = "error"
                self._stopping.wait(pause)
                pause = min(2 * pause, FIRST_PAUSE)
        self._resident.end()
        signal.alarm(0)
        self._say("serve: ended")

    def _work(self, still_alone: Callable[[], None]) -> None:
        with connected(self._config) as connection:
            health = Health(connection)
            try:
                while not self._stopping.is_asked():
                    still_alone()
                    for duty in self._duties:
                        if not self._stopping.is_asked() and duty.next_at <= time.monotonic():
                            self._do(duty, connection)
                    health.looked("\n".join(duty.error for duty in self._duties if duty.error))
                    soonest = min(duty.next_at for duty in self._duties)
                    self._stopping.wait(max(1.0, soonest - time.monotonic()))
            finally:
                health.ended()

    def _do(self, duty: Duty, connection: Connection) -> None:
        began = time.monotonic()
        try:
            if duty.is_due(connection):
                self._limit(duty.limit)
                duty.work()
            duty.done(began)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other duties go on
            duty.failed(time.monotonic(), error)
            self._say(duty.error)
            if duty.failures % FAILURES_OF_A_JVM == 0:
                self._resident.end()
        finally:
            self._limit(0)

    def _limit(self, seconds: int) -> None:
        """End the process after so many seconds; 0 is never."""
        signal.alarm(seconds)
        if self._stopping.is_asked():
            signal.alarm(DRAIN_SECONDS)

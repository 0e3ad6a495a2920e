"""Does the duties in turn, in one process at a time; the others wait to take over."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from sparkjobs.config import Config
from sparkjobs.databases import speaking_of
from sparkjobs.resident.duty import Duty
from sparkjobs.resident.keeper import DutyKeeper, Say
from sparkjobs.resident.spark import Resident
from sparkjobs.resident.stopping import StopSignal


class ResidentService:
    """The jobs until SIGTERM, with one session for all databases.

    Each database has a lock and duties of its own: one that is away, or that another process
    keeps, does not keep this one from the others.
    """

    def __init__(
        self, duties: Mapping[Config, Sequence[Duty]], resident: Resident, say: Say
    ) -> None:
        self._resident = resident
        self._say = say
        self._stopping = StopSignal()
        self._keepers = [
            DutyKeeper(config, of_config, resident, self._stopping, say)
            for config, of_config in duties.items()
        ]

    def run(self) -> None:
        self._stopping.install()
        while not self._stopping.is_asked():
            for keeper in self._keepers:
                if not self._stopping.is_asked() and keeper.next_at <= time.monotonic():
                    with speaking_of(keeper.config) if self._is_of_several else nullcontext():
                        keeper.step()
            if all(keeper.is_standby for keeper in self._keepers):
                self._resident.end()  # which needs no JVM
            soonest = min(keeper.next_at for keeper in self._keepers)
            self._stopping.wait(soonest - time.monotonic())
        for keeper in self._keepers:
            keeper.end()
        self._resident.end()
        signal.alarm(0)
        self._say("serve: ended")

    @property
    def _is_of_several(self) -> bool:
        return len(self._keepers) > 1

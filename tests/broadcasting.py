"""Runs the parts of a client of a broadcast group step by step, on the thread of a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streams.conf import settings
from streams.consume.registry import registrations
from streams.log.sequencer import sequence
from streams.process.broadcast.file import DEFAULT_NAME
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.heartbeat import Heartbeat
from streams.process.poller import ProcessPoller
from streams.process.runtime import Launch, Runtime
from streams.process.shared.connections import IdleLimit
from tests.consuming import NONE, SteppedWorker


class BroadcastProcess:
    """Has what ``ems_consume --name NAME`` runs for one broadcast consumer, without its threads."""

    def __init__(
        self, group: str, name: str = DEFAULT_NAME, *, using: str = "default", drain: bool = False
    ) -> None:
        (registration,) = registrations(groups=(group,))
        self.using = using
        self.feed = RunningBroadcastGroup(registration, using, NONE, name)
        runtime = Runtime.of([self.feed], using, Launch(drain=drain), IdleLimit(using))
        self.lifecycle, self.held = runtime.lifecycle, runtime.held
        self.pool, self.client = runtime.pool, runtime.client
        self.client.register()
        self.heartbeat = Heartbeat(runtime)
        self.poller = ProcessPoller(runtime)
        self.worker = SteppedWorker(runtime, 0)

    @property
    def woken(self) -> bool:
        """Tell whether somebody is to look into the group."""
        return self.pool._shares[self.feed].woken

    def forget_wake_up(self) -> None:
        self.pool._shares[self.feed].woken = False

    def run_until_idle(self) -> None:
        """Sequence, read and handle until there is nothing to read, or the process is stopping."""
        sequence(self.using)
        while self.worker.step() == 0.0 and not self.lifecycle.stopping:
            pass

    def close(self) -> None:
        self.feed.close()


def files() -> list[Path]:
    """Return the files with positions of all clients."""
    return sorted(Path(settings().STATE_DIR).glob("*.json"))


def written() -> dict[str, dict[str, Any]]:
    """Return the positions in the only file, by partition."""
    (file,) = files()
    partitions: dict[str, dict[str, Any]] = json.loads(file.read_text())["partitions"]
    return partitions


def offsets() -> dict[int, int]:
    return {int(number): position["offset"] for number, position in written().items()}

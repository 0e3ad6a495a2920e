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
from streams.process.broadcast.turn import BroadcastTurn
from streams.process.heartbeat import Heartbeat
from streams.process.poller import Poller
from streams.process.shared.client import Client
from streams.process.shared.connections import IdleLimit
from streams.process.shared.in_flight import InFlight
from streams.process.shared.stopping import Stopping
from streams.process.worker import Worker
from tests.consuming import NONE


class BroadcastProcess:
    """Has what ``ems_consume --name NAME`` runs for one broadcast consumer, without its threads."""

    def __init__(
        self, group: str, name: str = DEFAULT_NAME, *, using: str = "default", drain: bool = False
    ) -> None:
        (registration,) = registrations(groups=(group,))
        self.using = using
        self.lifecycle = Stopping()
        self.held = InFlight()
        self.feed = RunningBroadcastGroup(registration, using, NONE, name)
        self.client = Client([self.feed.group.pk], using)
        self.client.register()
        self.heartbeat = Heartbeat(self.client, self.held, self.lifecycle, [self.feed])
        self.poller = Poller([self.feed], self.held, self.lifecycle, using, drain=drain)
        self.worker = Worker(
            self.feed,
            0,
            kind=BroadcastTurn,
            client=self.client,
            held=self.held,
            lifecycle=self.lifecycle,
            idle_limit=IdleLimit(using, [self.feed.consume_timeout()]),
            using=using,
        )

    @property
    def turn(self) -> BroadcastTurn:
        """The turns that its worker takes in the group."""
        turn = self.worker.turn
        assert isinstance(turn, BroadcastTurn)
        return turn

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

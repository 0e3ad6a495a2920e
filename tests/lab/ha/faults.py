"""What befalls the primary, and what an orchestrator does then: each fault is a generator.

It does one thing, then yields the seconds to the next. Nothing here needs Django.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.ha.clusters import Cluster
from tests.lab.ha.router import HAProxy, Router
from tests.lab.scenarios.fleet import Process
from tests.servers import Server

FREEZE_SECONDS = 60.0
# Between a switchover and the one back.
SWITCHED_SECONDS = 6.0


@dataclass
class Stage:
    """Holds what plays: the servers, the way to them, and the processes."""

    cluster: Cluster
    router: Router | HAProxy
    folder: Path
    producers: list[Process] = field(default_factory=list)
    consumers: list[Process] = field(default_factory=list)
    promoted: float = 0.0  # when the way last led to another primary, in Unix time

    def promote(self) -> None:
        self.lead_to(self.cluster.promote())

    def lead_to(self, primary: Server) -> None:
        self.promoted = time.time()
        self.router.move(primary.port)


Fault = Callable[[Stage], Iterator[float]]


def kill(stage: Stage) -> Iterator[float]:
    """kill -9 of the primary."""
    stage.cluster.kill(stage.cluster.primary)
    stage.promote()
    yield 0.0


def both(stage: Stage) -> Iterator[float]:
    """kill -9 of the primary and of a consumer, which is started again."""
    stage.consumers[0].kill()
    stage.cluster.kill(stage.cluster.primary)
    stage.promote()
    stage.consumers[0].start()
    yield 0.0


def freeze(stage: Stage) -> Iterator[float]:
    """The primary stands still, is replaced, and goes on a minute later: nobody reaches it."""
    old = stage.cluster.primary
    stage.cluster.freeze(old)
    stage.promote()
    yield FREEZE_SECONDS
    stage.cluster.thaw(old)
    yield 5.0


def shutdown(stage: Stage) -> Iterator[float]:
    """The primary is stopped as an upgrade does it."""
    process = stage.cluster.primary.process
    assert process
    process.terminate()
    # With semi-sync it may wait for the commits that wait for their replica.
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    stage.promote()
    yield 0.0


def switch(stage: Stage) -> Iterator[float]:
    """A switchover, and back again: the primary lets nobody write first (error 1290)."""
    stage.lead_to(stage.cluster.switch_over())
    yield SWITCHED_SECONDS
    stage.lead_to(stage.cluster.switch_over())
    yield 0.0


def cut(seconds: float) -> Fault:
    def play(stage: Stage) -> Iterator[float]:
        assert isinstance(stage.router, Router), "HAProxy cuts nothing"
        stage.router.cut()
        yield seconds
        stage.router.heal()

    play.__doc__ = f"Nothing comes through for {seconds:g} s; the primary stays."
    return play


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "both": both,
    "freeze": freeze,
    "shutdown": shutdown,
    "switch": switch,
    "cut-5": cut(5),
    "cut-40": cut(40),
    "cut-90": cut(90),
}

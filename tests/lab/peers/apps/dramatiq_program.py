"""dramatiq on Redis."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.lab.peers.apps.common import THREADS, URL, handle, main, run_worker

# Another worker takes over what a dead one had after the heartbeat's timeout, in milliseconds.
dramatiq.set_broker(RedisBroker(url=URL, heartbeat_timeout=15_000, maintenance_chance=10_000))


@dramatiq.actor(max_retries=20)
def note(message: dict[str, Any]) -> None:
    handle(message)


def work(kind: str) -> None:
    module = "tests.lab.peers.apps.dramatiq_program"
    run_worker("-m", "dramatiq", module, "-p", "1", "-t", str(THREADS))


if __name__ == "__main__":
    main(note.send, work)

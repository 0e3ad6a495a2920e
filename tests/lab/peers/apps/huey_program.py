"""huey on Redis."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from tests.lab.peers.apps.common import THREADS, URL, handle, main, run_worker

huey = RedisHuey("peers", url=URL, results=False)


@huey.task(retries=20)
def note(message: dict[str, Any]) -> None:
    handle(message)


def work(kind: str) -> None:
    module = "tests.lab.peers.apps.huey_program"
    run_worker("-m", "huey.bin.huey_consumer", f"{module}.huey", "-k", "thread", "-w", str(THREADS))


if __name__ == "__main__":
    # huey names a task by its module, which the worker imports.
    from tests.lab.peers.apps import huey_program

    main(huey_program.note, work)

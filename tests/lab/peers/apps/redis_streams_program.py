"""Redis Streams with a consumer group, and what a team writes around it: claims of what is idle."""

from __future__ import annotations

import json
import os
from typing import Any

import redis

from tests.lab.peers.apps.common import URL, handle, main

STREAM, GROUP = "peers", "peers"
IDLE_MILLISECONDS = 15_000
BATCH = {"one": 1, "batch": 100}
server: Any = redis.Redis.from_url(URL)


def send(message: dict[str, Any]) -> None:
    server.xadd(STREAM, {"message": json.dumps(message)})


def work(kind: str) -> None:
    name, count = str(os.getpid()), BATCH[kind]
    while True:
        idle = server.xautoclaim(STREAM, GROUP, name, IDLE_MILLISECONDS, count=count)[1]
        new = server.xreadgroup(GROUP, name, {STREAM: ">"}, count=count, block=1000)
        for entries in [idle, *(found for _stream, found in new)]:
            for _number, fields in entries:
                handle(json.loads(fields[b"message"]))
            if entries:
                server.xack(STREAM, GROUP, *(number for number, _fields in entries))


def setup() -> None:
    server.xgroup_create(STREAM, GROUP, id="0", mkstream=True)


if __name__ == "__main__":
    main(send, work, setup)

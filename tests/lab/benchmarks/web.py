"""Measures the hot routes of the HTTP API in one checkout: sends, and pulls with their acks.

A web process of uvicorn as the guide has it, with a new project's middleware, and CLIENTS
connections. Where a checkout takes acks inside a pull, they are measured there, and else as
requests of their own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tests.lab.benchmarks.consume.processes import Spent
from tests.lab.benchmarks.contender import Contender, processor_seconds, server_pid
from tests.lab.benchmarks.http import (
    BATCH,
    CLIENTS,
    TIMEOUT,
    TOPIC,
    Connection,
    make_group,
    questions,
    served,
    together,
    within,
)

SEND, PULL = "web-send", "web-pull"
# Requests of each client in a round; pulls have ten messages each, and an ack.
SENDS, PULLS = 60, 30
GROUP = "work"

FILL = f"""
import sys
from streams import Outgoing, send_many
from streams.log.sequencer import sequence

for _ in range(int(sys.argv[1])):
    send_many([Outgoing("{TOPIC}", {{"number": n}}) for n in range(1000)])
while sequence("default").more:
    pass
"""


class Web:
    """Runs the web process of a checkout, and makes its requests."""

    def __init__(self, contender: Contender, line: str, rounds: int) -> None:
        self._spawn = contender.spawn(HTTP_INSECURE=True)
        self._plain = contender.connect()
        self._database = server_pid(self._plain)
        self._acks: dict[int, list[Any]] = {}
        self.spent, self.statements = Spent(), 0
        try:
            self._web, self._api = served(self._spawn)
            self._work, self._times = (self._send, SENDS) if line == SEND else (self._pull, PULLS)
            if line == PULL:
                make_group(self._api, GROUP)
                messages = (rounds + 2) * CLIENTS * PULLS * BATCH
                self._spawn(FILL, -(-messages // 1000)).succeed()
                contract = within(TIMEOUT, self._api.one("GET", "/openapi.json", None))
                pull = contract["components"]["schemas"]["Pull"]["properties"]
                self._inside = "acks" in pull
            self.round()  # what a process does only once is not measured
            self.spent, self.statements = Spent(), 0
        except BaseException:
            self.close()
            raise

    def round(self) -> float:
        """Make the requests of a round; return how many a second."""
        before, asked = self._used(), questions(self._plain)
        started = time.monotonic()
        made = within(TIMEOUT, together(partial(self._client, self._work)))
        elapsed = time.monotonic() - started
        after = self._used()
        self.statements += questions(self._plain) - asked - 1  # one is the question itself
        self.spent.messages += made
        self.spent.client_seconds += after[0] - before[0]
        self.spent.server_seconds += after[1] - before[1]
        return made / elapsed

    def _used(self) -> tuple[float, float]:
        database = processor_seconds(self._database) if self._database else 0.0
        return processor_seconds(self._web.pid), database

    async def _client(self, work: Callable[[Connection, int], Awaitable[None]], number: int) -> int:
        connection = await Connection.to(self._api)
        for _time in range(self._times):
            await work(connection, number)
        connection.close()
        return self._times

    async def _send(self, connection: Connection, number: int) -> None:
        message = {"body": {"number": number}, "key": "A7"}
        await connection.call("POST", f"/v1/topics/{TOPIC}/messages", message)

    async def _pull(self, connection: Connection, number: int) -> None:
        asked: dict[str, Any] = {"client": f"client-{number}", "batch": BATCH}
        if self._inside:
            asked["acks"] = self._acks.pop(number, [])
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/pull"
        found = (await connection.call("POST", path, asked))["deliveries"]
        assert found, "nothing is left to pull"
        self._acks[number] = [
            {
                "receipt": one["receipt"],
                "results": [{"offset": m["offset"]} for m in one["messages"]],
            }
            for one in found
        ]
        for delivery in found if not self._inside else ():
            await connection.ack(delivery)

    def close(self) -> None:
        self._plain.close()
        self._spawn.close()

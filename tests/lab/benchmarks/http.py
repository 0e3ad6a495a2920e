"""Measures the HTTP API: what held clients cost, how soon they get a message, how many pulls.

A web server of uvicorn, one process, with Redis; the clients are a few asyncio connections of this
process, which use a part of the machine, too. What is sent at a rate comes from another process.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tests.lab.benchmarks.contender import processor_seconds, server_pid, this
from tests.lab.benchmarks.figures import Options, Row, Value
from tests.lab.benchmarks.server import connect, execute, name
from tests.processes import Child, Spawn

T = TypeVar("T")

TOPIC, GROUP = "bench-http", "work"
HELD = 500
A_SECOND = 50
CLIENTS = 8
BATCH = 10
# Statements a second while HELD clients wait; connections beside those of HTTP_THREADS; ms within
# which half and 99 of 100 messages come; pulls a second.
STATEMENTS, MORE_CONNECTIONS, HALF, MOST, PULLS = 4.0, 2, 15.0, 60.0, 1000
THREADS = 8
# Seconds: in which what is held, what is sent at a rate, and each kind of pull must be measured,
# and for how long pulls are counted at most. Beyond the first two the benchmark fails.
HELD_WITHIN, SENT_WITHIN, PULLED_WITHIN, COUNTED = 45.0, 20.0, 40.0, 20.0
# Longer than the benchmark: what a client pulls and does not acknowledge must not come again.
TIMEOUT = 600
PORT_LINE = "Uvicorn running on"

SERVER = """
import uvicorn
from django.conf import settings
from streams.http.pulling import holding
holding.HOLDS = 2000
settings.ALLOWED_HOSTS = ["*"]
from django.core.asgi import get_asgi_application
from streams.http.asgi import refusing_early
application = refusing_early(get_asgi_application())
uvicorn.run(application, port=0, log_level="info", access_log=False)
"""
# Prints a token for all that is measured.
TOKEN = """
from streams.models import ApiToken
from streams.operate.tokens import issue, right_of

token = ApiToken(name="bench", created_by="bench", max_holds=2000)
print(issue(token, [right_of("consume:*/*"), right_of("send:*")], "default"))
"""


# Sends at a rate, and prints when each send has returned: all processes have one monotonic clock.
SENDER = """
import sys, time
from streams import send
topic, count, a_second = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
send(topic, -1)  # what a process does only once is not measured
time.sleep(1)
started = time.monotonic()
committed = []
for number in range(count):
    time.sleep(max(0.0, started + number / a_second - time.monotonic()))
    send(topic, number)
    committed.append(time.monotonic())
print("committed", *committed)
"""


def figures(options: Options) -> Iterator[Row]:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    spawn = this().spawn(REDIS="redis", POLL_SECONDS=1.0, HTTP_INSECURE=True, HTTP_THREADS=THREADS)
    try:
        server, api = served(spawn)
        make_group(api, GROUP)
        yield from _held(api, 100 if options.quick else HELD, 5.0 if options.quick else 10.0)
        yield from _latency(api, spawn, 3.0 if options.quick else 30.0)
        yield from _pulls(api, server.pid, 300 if options.quick else 5000)
    finally:
        spawn.close()


def served(spawn: Spawn) -> tuple[Child, Api]:
    """Start a web process; return it, and what makes its requests."""
    token = spawn(TOKEN).succeed().split()[-1]
    server = spawn(SERVER)
    line = server.expect(PORT_LINE)
    return server, Api(int(line.split("http://127.0.0.1:")[1].split()[0]), token)


def make_group(api: Api, group: str) -> None:
    path = f"/v1/topics/{TOPIC}/groups/{group}"
    given = {"start": "latest", "consume_timeout": TIMEOUT}
    within(PULLED_WITHIN, api.one("PUT", path, given))


def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns; raises TimeoutError after so many seconds."""
    return asyncio.run(asyncio.wait_for(work, seconds))


@dataclass
class Api:
    """Makes requests over connections that stay open."""

    port: int
    token: str

    async def one(self, method: str, path: str, content: Any) -> Any:
        connection = await Connection.to(self)
        try:
            return await connection.call(method, path, content)
        finally:
            connection.close()


@dataclass
class Connection:
    """Is one connection: the least that HTTP/1.1 needs, so that the client costs little."""

    api: Api
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, api: Api) -> Connection:
        return cls(api, *await asyncio.open_connection("127.0.0.1", api.port, limit=2**24))

    async def call(self, method: str, path: str, content: Any) -> Any:
        body = json.dumps(content).encode()
        head = (
            f"{method} /ems{path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {self.api.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.partition("content-length:")[2].split()[0])
        read = await self.reader.readexactly(length)
        status = int(answer.split()[1])
        assert status < 300, f"{status} {read.decode()}"
        return json.loads(read) if read else None

    async def pull(self, client: str, hold: float, group: str = GROUP) -> list[Any]:
        asked = {"client": client, "batch": BATCH, "hold": hold}
        path = f"/v1/topics/{TOPIC}/groups/{group}/pull"
        found: list[Any] = (await self.call("POST", path, asked))["deliveries"]
        return found

    async def ack(self, delivery: Any) -> None:
        results = [{"offset": message["offset"]} for message in delivery["messages"]]
        await self.call(
            "POST", "/v1/deliveries/ack", {"receipt": delivery["receipt"], "results": results}
        )

    def close(self) -> None:
        self.writer.close()


def _held(api: Api, clients: int, seconds: float) -> Iterator[Row]:
    statements, connections = within(HELD_WITHIN, _hold(api, clients, seconds))
    yield Row(
        f"{clients} held clients, statements/s",
        {"value": round(statements, 2), "limit": STATEMENTS},
        "" if statements <= STATEMENTS else "too many statements",
    )
    limit = THREADS + MORE_CONNECTIONS
    yield Row(
        f"{clients} held clients, connections",
        {"value": connections, "limit": limit},
        "" if connections <= limit else "too many connections",
    )


async def _hold(api: Api, clients: int, seconds: float) -> tuple[float, int]:
    plain = connect()
    made = [await Connection.to(api) for _ in range(clients)]
    waits = [
        asyncio.ensure_future(one.pull(f"held-{number}", 20)) for number, one in enumerate(made)
    ]
    while execute(plain, "SELECT COUNT(*) FROM ems_client")[0][0] < clients:
        _fail_with(waits)
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)  # what is looked for often at first, becomes rare
    before, started = questions(plain), time.monotonic()
    await asyncio.sleep(seconds)
    _fail_with(waits)
    # One of them is the question itself.
    made_statements = questions(plain) - before - 1
    elapsed = time.monotonic() - started
    ((connections,),) = execute(
        plain,
        "SELECT COUNT(*) FROM information_schema.processlist"
        f" WHERE db = '{name()}' AND id <> CONNECTION_ID()",
    )
    for wait in waits:
        wait.cancel()
    for one in made:
        one.close()
    plain.close()
    from django.db import connections as django

    django.close_all()
    return made_statements / elapsed, connections


def _fail_with(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Raise what one of ``tasks`` has raised."""
    for task in tasks:
        if task.done():
            task.result()


def questions(plain: Any) -> int:
    ((_name, value),) = execute(plain, "SHOW GLOBAL STATUS LIKE 'Questions'")
    return int(value)


def _latency(api: Api, spawn: Spawn, seconds: float) -> Iterator[Row]:
    waits = within(seconds + SENT_WITHIN, _waits(api, spawn, int(A_SECOND * seconds)))
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    for share, limit in ((50, HALF), (99, MOST)):
        yield Row(
            f"commit to answer at {A_SECOND}/s, p{share}, ms",
            {"value": round(1000 * cuts[share - 1], 1), "limit": limit},
        )


async def _waits(api: Api, spawn: Spawn, count: int) -> list[float]:
    """Return the seconds from the end of each send until a client has its message."""
    arrived: dict[int, float] = {}
    complete = asyncio.Event()

    async def pull(client: str) -> None:
        connection = await Connection.to(api)
        try:
            while True:
                for delivery in await connection.pull(client, 20):
                    now = time.monotonic()
                    arrived.update({one["body"]: now for one in delivery["messages"]})
                    await connection.ack(delivery)
                    if len(arrived) == count + 1:
                        complete.set()
        finally:
            connection.close()

    clients = [asyncio.ensure_future(pull(f"client-{number}")) for number in range(CLIENTS)]
    sender = spawn(SENDER, TOPIC, count, A_SECOND)
    line = await asyncio.to_thread(sender.expect, "committed", count / A_SECOND + SENT_WITHIN)
    await complete.wait()
    for one in clients:
        one.cancel()
    committed = map(float, line.split()[1:])
    return [max(0.0, arrived[number] - at) for number, at in enumerate(committed)]


def _pulls(api: Api, web: int, count: int) -> Iterator[Row]:
    from streams import Outgoing, send_many
    from streams.log.sequencer import sequence

    for with_ack in (False, True):
        group = "pulls-and-acks" if with_ack else "pulls"
        make_group(api, group)
        for _ in range(count * BATCH // 1000):
            send_many([Outgoing(TOPIC, {"number": n}) for n in range(1000)])
        while sequence("default").more:
            pass
        plain = connect()
        pid = server_pid(plain)
        before = processor_seconds(web), processor_seconds(pid) if pid else 0.0
        started = time.monotonic()
        made = within(PULLED_WITHIN, together(partial(_count_pulls, api, group, with_ack)))
        elapsed = time.monotonic() - started
        after = processor_seconds(web), processor_seconds(pid) if pid else 0.0
        plain.close()
        label = "pulls and acks" if with_ack else "pulls"
        speed: dict[str, Value] = {"value": round(made / elapsed), "limit": PULLS}
        yield Row(f"{label} of {BATCH} messages, a second", speed)
        for where, one, other in zip(("web", "database"), before, after, strict=True):
            used: dict[str, Value] = {
                "value": round(1000 * (other - one) / made, 2),
                "limit": None,
            }
            yield Row(f"{label} of {BATCH} messages, {where} CPU, ms each", used)


async def together(work: Callable[[int], Awaitable[int]]) -> int:
    return sum(await asyncio.gather(*(work(number) for number in range(CLIENTS))))


async def _count_pulls(api: Api, group: str, with_ack: bool, number: int) -> int:
    """Pull until nothing is left, for COUNTED seconds at most; return how many pulls had some."""
    ends, made = time.monotonic() + COUNTED, 0
    connection = await Connection.to(api)
    while time.monotonic() < ends and (
        found := await connection.pull(f"client-{number}", 0, group)
    ):
        made += 1
        for delivery in found if with_ack else ():
            await connection.ack(delivery)
    connection.close()
    return made

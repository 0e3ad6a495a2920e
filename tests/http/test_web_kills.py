"""Clients and web servers may be killed at any instruction, and nothing is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from streams import Outgoing, send_many
from streams.chaos.forks import in_fork
from streams.http.pulling import clients, groups, outcomes
from streams.http.pulling.handing_out import Asked, hand_out
from streams.http.pulling.receipts import named, receipt_of
from streams.log.sequencer import sequence
from streams.models import Cursor, DeadMessage, Delivery, Partition, RetryMessage, Topic
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER
from tests.faults import Guillotine, strides
from tests.http.servers import Web
from tests.processes import Child, Spawn, wait_for

pytestmark = pytest.mark.usefixtures("transactional_db")

StartWeb = Callable[..., Web]

Outcome = Literal["done", "retry", "reject", "fail"]

# What a client says of each message of a topic: 1 fails once, 2 can never be handled.
OUTCOMES: tuple[Outcome, ...] = ("done", "retry", "reject", "done")
MINUTE = timedelta(minutes=1)


def pull_all(topic: str, client: str, *, ordered: bool) -> list[int]:
    """Pull and acknowledge until nothing is left; return the offsets that are done."""
    done: list[int] = []
    while True:
        group = groups.pulled(topic, "mail", "default")
        assert group.limits is not None
        found = hand_out(
            group, group.limits, Asked(clients.client_id("x", client), 3, MINUTE)
        ).handed
        if not found:
            return done
        for handed in found:
            results = []
            for message in handed.messages:
                outcome: Outcome = OUTCOMES[message.offset] if message.attempt == 1 else "done"
                delay = 0.0 if outcome == "retry" else None
                results.append(outcomes.Result(message.offset, outcome, "why", delay))
                if ordered and outcome != "done":
                    break
            receipt = receipt_of(handed.delivery)
            outcomes.acknowledge(named(receipt).delivery, results)
            done += [result.offset for result in results if result.outcome == "done"]


@strides(17)
@pytest.mark.parametrize("ordered", [False, True], ids=["cluster", "ordered"])
def test_a_web_server_may_be_killed_between_any_two_statements(ordered: bool, stride: int) -> None:
    for point in count(1, stride):
        topic = f"orders-{point}"
        groups.ensure_group(topic, "mail", "default", ordered=ordered)
        send_many([Outgoing(topic, "x") for _ in OUTCOMES])
        sequence("default")

        def die(topic: str, point: int) -> None:
            Guillotine(point).install()
            pull_all(topic, "first", ordered=ordered)

        status = in_fork(partial(die, topic, point))
        assert status in (0, -9)
        for _round in range(6):
            advance(LONG_AFTER)
            clients._known.clear()
            sweep("default")
            pull_all(topic, "second", ordered=ordered)
        of_topic = {"group__topic__name": topic}
        assert not Delivery.objects.open().filter(**of_topic).exists()
        assert not RetryMessage.objects.filter(**of_topic).exists()
        cursor = Cursor.objects.get(**of_topic)
        assert cursor.next_offset == len(OUTCOMES)
        if status == 0:
            break
    assert point > 15
    assert audit("default") == []


PULLER = """
import os, sys
from streams.http.client import Client
url, token, name, path = sys.argv[1:]
def handle(message):
    line = f"{message.partition} {message.offset} {message.attempt} {name}\\n"
    with open(path, "a") as file:
        os.write(file.fileno(), line.encode())
print("pulls", flush=True)
Client(url, token).consume("orders", "mail", handle, client=name, hold=1, timeout=TIMEOUT)
"""
CONSUMER = """
import os
from django.core.management import call_command
from streams import consumer
@consumer("orders", group="mail")
def handle(message):
    line = f"{message.partition} {message.offset} {message.attempt} code\\n"
    with open(os.environ["HANDLED"], "a") as file:
        os.write(file.fileno(), line.encode())
call_command("ems_consume")
"""


class Fleet:
    """Has clients that pull and consumers in code, which share one group and note what they do."""

    def __init__(self, spawn: Spawn, web: Web, path: Path, timeout: int) -> None:
        self.spawn, self.web, self.path, self.timeout = spawn, web, path, timeout
        path.touch()
        web.client().make_group("orders", "mail", start="earliest", consume_timeout=timeout)

    def puller(self, name: str) -> Child:
        url = f"http://127.0.0.1:{self.web.port}/ems"
        code = PULLER.replace("TIMEOUT", str(self.timeout))
        return self.spawn(code, url, self.web.token, name, self.path)

    def consumer(self) -> Child:
        return self.spawn(CONSUMER, env={"HANDLED": str(self.path)})

    def handled(self) -> Counter[tuple[int, int]]:
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return Counter((int(words[0]), int(words[1])) for words in lines)

    def assert_complete(self, total: int, *, wait: float) -> None:
        wait_for(lambda: len(self.handled()) == total, lambda: len(self.handled()), wait)
        wait_for(lambda: not Delivery.objects.open().exists(), "open deliveries", wait)
        wait_for(lambda: not RetryMessage.objects.exists(), "retries", wait)
        assert not DeadMessage.objects.exists()
        for (number, offset), times in self.handled().items():
            if times > 1:  # whoever had it before was killed with it in hand, or has lost it
                place = Delivery.objects.filter(partition__number=number)
                claims = place.filter(first_offset__lte=offset, last_offset__gte=offset)
                assert claims.exclude(error="").count() >= times - 1, (number, offset, times)
        assert audit("default") == []


def a_topic(partitions: int) -> None:
    topic = Topic.objects.create(name="orders")
    for number in range(1, partitions):
        Partition.objects.create(topic=topic, number=number)


@pytest.mark.exhaustive
def test_clients_and_consumers_share_a_group_while_the_server_is_killed(
    web: StartWeb, spawn: Spawn, tmp_path: Path
) -> None:
    a_topic(3)
    server = web()
    fleet = Fleet(spawn, server, tmp_path / "handled", timeout=60)
    fleet.consumer()
    stopped, seen = threading.Event(), Counter[tuple[int, int]]()
    lock = threading.Lock()

    def handle(message: object) -> None:
        with lock:
            seen[message.partition, message.offset] += 1  # type: ignore[attr-defined]
        time.sleep(0.002)

    loops = [
        threading.Thread(
            target=partial(
                server.client().consume,
                *("orders", "mail", handle),
                client=f"c{n}",
                hold=1,
                batch=20,
                stopped=stopped.is_set,
            )
        )
        for n in range(2)
    ]
    for loop in loops:
        loop.start()
    send_many([Outgoing("orders", n, key=str(n)) for n in range(600)])

    def handled() -> set[tuple[int, int]]:
        with lock:
            return {*seen, *fleet.handled()}

    wait_for(lambda: len(seen) > 20)
    server.kill()
    server.start()
    send_many([Outgoing("orders", n, key=str(n)) for n in range(300)])
    try:
        wait_for(lambda: len(handled()) == 900, lambda: len(handled()))
        wait_for(lambda: not Delivery.objects.open().exists())
    finally:
        stopped.set()
        for loop in loops:
            loop.join()
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_random_kills_of_clients_and_of_the_server(
    web: StartWeb, spawn: Spawn, tmp_path: Path
) -> None:
    a_topic(4)
    server = web()
    fleet = Fleet(spawn, server, tmp_path / "handled", timeout=10)
    code = [fleet.consumer() for _ in range(2)]
    pullers = {f"c{n}": fleet.puller(f"c{n}") for n in range(3)}
    total, sent = 20_000, 0
    dice = random.Random(7)  # noqa: S311
    while sent < total:
        send_many([Outgoing("orders", n, key=str(n)) for n in range(500)])
        sent += 500
        if not dice.randrange(4):
            name = dice.choice([*pullers])
            pullers[name].kill()
            pullers[name] = fleet.puller(name)
        if not dice.randrange(10):
            server.kill()
            server.start()
        time.sleep(0.2)
    fleet.assert_complete(total, wait=300)
    assert all(child.process.poll() is None for child in code)


@pytest.mark.exhaustive
def test_an_ordered_group_keeps_its_order_over_http(web: StartWeb) -> None:
    server = web()
    api = server.client()
    api.make_group("orders", "mail", ordered=True)
    send_many([Outgoing("orders", n) for n in range(120)])
    seen: list[int] = []
    stopped = threading.Event()

    def handle(message: object) -> None:
        seen.append(message.offset)  # type: ignore[attr-defined]
        if os.urandom(1)[0] < 8 and seen.count(seen[-1]) == 1:
            raise RuntimeError("once more")

    loops = [
        threading.Thread(
            target=partial(
                api.consume,
                *("orders", "mail", handle),
                client=f"c{n}",
                hold=1,
                stopped=stopped.is_set,
            )
        )
        for n in range(3)
    ]
    for loop in loops:
        loop.start()
    try:
        wait_for(lambda: _unblocked() and len(set(seen)) == 120)
    finally:
        stopped.set()
        for loop in loops:
            loop.join()
    # An attempt that failed comes again before anything after it.
    assert [n for place, n in enumerate(seen) if n not in seen[:place]] == [*range(120)]
    assert seen == sorted(seen)


def _unblocked() -> bool:
    Cursor.objects.update(blocked_until=None)
    return True

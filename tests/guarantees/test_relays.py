"""Relays to a RabbitMQ and a Redis that are killed, frozen and away: nothing is lost, and the order
by key stays. Real processes of ``ems_consume``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from streams import Outgoing, relay, send, send_many
from streams.consume.outcome.failure import ResourceAway
from streams.log.lag import lags
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    RetryMessage,
)
from streams.observe.audit.walk import audit
from streams.testing import advance, drain
from tests.brokers import LARGEST_BYTES, DurableRedis, Killable, RabbitMQ
from tests.consuming import registered
from tests.packages import Programs, Unavailable
from tests.processes import Child, Spawn, wait_for
from tests.servers import memory_or_disk

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

# Longer than a broker takes to start on a busy machine.
PATIENCE = 180
KEYS = 5

RELAY = """
import sys
from kombu import Exchange
from django.core.management import call_command
from streams import relay
from streams.process import processes
processes.LONGEST_PAUSE_SECONDS = 1.0  # it is killed often, and on purpose
url, ordered, *words = sys.argv[1:]
relay("orders", to=url, exchange=Exchange("shop", "topic"), routing_key="order.{tag}",
      group="relay", ordered=ordered == "ordered", seconds=5, batch=20)
call_command("ems_consume", "--start", "earliest", "--processes", "1", *words)
"""


def running(kind: type[Killable]) -> Iterator[Killable]:
    try:
        server = kind(Programs.find(kind.kind), memory_or_disk(1))
    except Unavailable as reason:
        pytest.skip(str(reason))
    server.prepare()
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Killable]:
    yield from running(RabbitMQ)


@pytest.fixture(scope="module")
def redis() -> Iterator[Killable]:
    yield from running(DurableRedis)


@pytest.fixture(params=["rabbit", "redis"])
def broker(request: pytest.FixtureRequest) -> Killable:
    found: Killable = request.getfixturevalue(request.param)
    return found


class Receiver:
    """A durable queue that gets all of the exchange, new for each test."""

    def __init__(self, broker: Killable) -> None:
        self._broker = broker
        self._queue = Queue("all", Exchange("shop", "topic"), "order.#")
        self.declare()
        with self._bound() as queue:
            queue.purge()

    def declare(self) -> None:
        """Declare the queue and its binding, which RabbitMQ may forget if it is killed soon after.

        Its file of bindings was empty then, although it had confirmed the declaration.
        """
        wait_for(self._declared, timeout=PATIENCE)

    def _declared(self) -> bool:
        try:
            with self._bound() as queue:
                queue.declare()
        except OSError:
            return False
        return True

    @contextmanager
    def _bound(self) -> Iterator[Any]:
        with Connection(self._broker.url) as connection:
            yield self._queue(connection.channel())

    def got(self) -> list[Any]:
        """Take what has arrived."""
        found = []
        with self._bound() as queue:
            while message := queue.get(no_ack=True):
                found.append(message)
        return found


def lag() -> Any:
    found = lags(ConsumerGroup.objects.filter(name="relay"), "default")
    return found[0] if found else None


def done() -> int:
    now = lag()
    return now.done if now else 0


def finished(messages: int) -> bool:
    return done() == messages


def worker() -> int | None:
    """Return the process id of the worker process."""
    ids = Consumer.objects.live().values_list("client_id", flat=True)
    return int(ids[0].split("@")[1]) if len(ids) else None


def restarted(broker: Killable) -> None:
    broker.start()
    broker.wait()


def assert_all_arrived_in_order(receiver: Receiver, messages: int) -> None:
    """Check what a receiver has that drops what it has seen before."""
    first: dict[str, Any] = {}
    arrived = receiver.got()
    for message in arrived:
        first.setdefault(message.properties["message_id"], message)
    assert sorted(message.payload for message in first.values()) == list(range(messages))
    print(f"{messages} messages, {len(arrived) - messages} repeats")
    for key in range(KEYS):
        of_key = [m.payload for m in first.values() if m.headers["ems-key"] == str(key)]
        assert of_key == sorted(of_key)


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "kills",
    [1, 20],
)
def test_kills_of_consumer_and_broker_lose_nothing_and_keep_the_order_by_key(
    broker, kills, spawn: Spawn, ems_settings
):
    ems_settings(POLL_SECONDS=0.05)
    receiver = Receiver(broker)
    child = spawn(RELAY, broker.url, "ordered")
    sent = 0

    def why() -> Any:
        return lag(), [*Cursor.objects.values_list("last_error")], child.text()

    def send_some() -> None:
        nonlocal sent
        numbers = range(sent, sent + 100)
        send_many([Outgoing("orders", n, key=n * 7 % KEYS, tag="paid") for n in numbers])
        sent += 100

    def wait_for_the_middle(number: int) -> None:
        """Wait until a part of the last messages is done, another one each time."""
        wait_for(lambda: done() > sent - 100 + 20 * (number % 4), lag, PATIENCE)

    def wait_for_another(worker_before: int) -> None:
        wait_for(lambda: worker() not in (None, worker_before), lag, PATIENCE)

    for number in range(kills):
        send_some()
        wait_for_the_middle(number)
        pid = worker()
        assert pid
        os.kill(pid, signal.SIGKILL)
        send_some()
        wait_for_another(pid)
        wait_for_the_middle(number)
        broker.kill()
        send_some()
        restarted(broker)
        receiver.declare()
    wait_for(lambda: finished(sent), why, timeout=PATIENCE)
    assert_all_arrived_in_order(receiver, sent)
    assert not DeadMessage.objects.exists()
    assert not any(audit("default"))


@pytest.mark.parametrize(
    "tries",
    [
        "next try in 2 s",
        # 1 + 2 + 4 + 8 seconds, and the tries between them.
        pytest.param("next try in 16 s", marks=[pytest.mark.exhaustive, pytest.mark.timeout(400)]),
    ],
)
def test_while_the_broker_is_away_nothing_is_spent_and_the_group_says_why_it_waits(
    redis, tries, spawn: Spawn, ems_settings
):
    ems_settings(POLL_SECONDS=0.05)
    receiver = Receiver(redis)
    redis.kill()
    send_many([Outgoing("orders", n, tag="paid") for n in range(300)])
    child = spawn(RELAY, redis.url, "plain")
    child.expect("relay on orders waits: ConnectionError:")
    wait_for(Consumer.objects.away().exists)
    assert lag().away is not None
    assert "refused" in Consumer.objects.away().get().away_reason
    child.expect(tries)
    assert not RetryMessage.objects.exists()
    assert lag().unfinished == 300
    restarted(redis)
    child.expect("relay on orders goes on")
    wait_for(lambda: finished(300), lag)
    wait_for(lambda: not Consumer.objects.away().exists())
    assert sorted({m.payload for m in receiver.got()}) == list(range(300))
    assert set(Delivery.objects.values_list("attempt", flat=True)) == {1}
    assert not any(audit("default"))


@pytest.mark.exhaustive
def test_a_frozen_broker_holds_no_call_beyond_its_time(broker, spawn: Spawn, ems_settings):
    ems_settings(POLL_SECONDS=0.05)
    receiver = Receiver(broker)
    child: Child = spawn(RELAY, broker.url, "plain")
    send("orders", 0, tag="paid")
    wait_for(lambda: finished(1))
    broker.freeze()
    try:
        send("orders", 1, tag="paid")
        child.expect("relay on orders waits: TimeoutError")  # long before its consume_timeout
    finally:
        broker.go_on()
    wait_for(lambda: finished(2), lag, timeout=PATIENCE)
    assert {m.payload for m in receiver.got()} == {0, 1}
    assert not RetryMessage.objects.exists()


@pytest.fixture
def to_rabbit(rabbit: Killable) -> Iterator[Callable[..., Receiver]]:
    """Register a relay in this process."""

    def register(**options: Any) -> Receiver:
        receiver = Receiver(rabbit)
        given = {"exchange": "shop", "routing_key": "order.{tag}", "max_retries": 0, **options}
        relay("orders", to=rabbit.url, group="relay", **given)
        return receiver

    yield register
    registered("orders", "relay").handler.broker.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("ordered", [False, True, "key"])
def test_rabbitmq_returns_what_no_queue_would_get_and_the_message_has_failed(to_rabbit, ordered):
    receiver = to_rabbit(routing_key="{tag}.paid", ordered=ordered)
    tags = ["order", "lost", "order"]
    send_many([Outgoing("orders", n, tag=tag) for n, tag in enumerate(tags)])
    result = drain()
    assert (result.done, result.dead) == (2, 1)
    assert {m.payload for m in receiver.got()} == {0, 2}
    assert DeadMessage.objects.get().error == "no queue gets 'lost.paid'"


def test_by_key_a_message_that_is_refused_holds_back_its_key_alone(to_rabbit):
    receiver = to_rabbit(routing_key="{tag}.paid", ordered="key", max_retries=3)
    keys, tags = ["a", "a", "b", None], ["lost", "order", "order", "order"]
    of_each = enumerate(zip(keys, tags, strict=True))
    send_many([Outgoing("orders", n, key=key, tag=tag) for n, (key, tag) in of_each])
    drain()
    assert {m.payload for m in receiver.got()} == {2, 3}
    assert RetryMessage.objects.filter(due_at=None).get().offset == 1
    while not DeadMessage.objects.exists():
        advance(timedelta(hours=3))
        drain()
    drain()
    assert [m.payload for m in receiver.got()] == [1]


def test_a_message_that_rabbitmq_refuses_fails_alone(to_rabbit):
    receiver = to_rabbit()
    bodies = ["a", "b" * (LARGEST_BYTES + 1), "c"]
    send_many([Outgoing("orders", body, tag="paid") for body in bodies])
    result = drain()
    assert (result.done, result.dead) == (2, 1)
    assert {m.body for m in receiver.got()} == {"a", "c"}
    assert "PreconditionFailed" in DeadMessage.objects.get().error


def test_a_missing_exchange_is_no_failure_of_a_message(to_rabbit):
    to_rabbit(exchange="nobody-made-it")
    send("orders", 1, tag="paid")
    with pytest.raises(ResourceAway, match="NOT_FOUND"):
        drain()
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()


def test_rabbitmq_gets_all_that_a_message_has(to_rabbit):
    receiver = to_rabbit()
    sent = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "who": "Jörg"}
    send("orders", {"n": "ü"}, key="k", tag="paid", headers=sent)
    assert drain().done == 1
    (message,) = receiver.got()
    assert message.payload == {"n": "ü"}
    assert message.headers == {**sent, "ems-topic": "orders", "ems-key": "k", "ems-tag": "paid"}
    assert message.properties["message_id"] == "orders/0@0"
    assert message.properties["delivery_mode"] == 2
    assert message.properties["timestamp"]

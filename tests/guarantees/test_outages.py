"""Lost connections, lost replies, a database or a Redis that goes away: nothing is lost, and
nothing is done twice that was acknowledged once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from itertools import count
from urllib.parse import urlsplit

import pytest
from django.db import OperationalError, connection, transaction

from streams import Outgoing, Reject, Retry, SendOutcomeUnknown, consumer, send, send_many, wakeup
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.database.retrying import retrying
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    RetryMessage,
    State,
)
from streams.observe.audit.walk import audit
from streams.process.keeper import Keeper
from streams.process.worker import AFTER_ERROR_SECONDS
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, consume_the_rest, given_back
from tests.faults import Relay, Severed, kill_other_connections, redis_url, strides
from tests.hostapp.models import Handled, Order
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

COMMIT = b"COMMIT"
CLAIM = b"INSERT INTO `ems_topic_group_log`"
SETTLE = b"UPDATE `ems_topic_group_log`"


@pytest.mark.django_db(transaction=True)
def test_in_a_transaction_by_hand_nothing_is_repeated():
    """A deadlock has rolled back what its owner had written, too."""
    tries = []

    def work():
        tries.append(1)
        raise OperationalError(1213, "Deadlock found")

    transaction.set_autocommit(False)
    try:
        with pytest.raises(OperationalError):
            retrying(work, "default")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert len(tries) == 1


# -- lost replies ------------------------------------------------------------------------------


@pytest.fixture
def process(calls):
    """A process in whose group each call of the handler is noted, with three messages sent."""
    consumer("orders", group="mail")(
        lambda message: calls.append((message.offset, message.attempt))
    )
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    return process


@pytest.fixture
def calls():
    return []


ONCE = [(0, 1), (1, 1), (2, 1)]


@pytest.mark.mysql
@pytest.mark.parametrize("statement", [COMMIT, CLAIM, b"UPDATE `ems_cursor`"])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_claim_of_unknown_outcome_is_adopted_or_made_again(
    proxied, process, calls, fault, statement
):
    getattr(proxied, fault)(statement)
    process.run_until_idle()
    assert proxied.fired == [statement]
    assert calls == ONCE
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.first_offset, delivery.last_offset) == (State.DONE, 0, 2)
    assert audit("default") == []


@pytest.mark.mysql
def test_a_claim_is_adopted_also_when_the_look_for_it_is_cut_off(proxied, process, calls):
    proxied.lose_reply_to(COMMIT)
    proxied.cut_before(b"`ems_topic_group_log`.`token` =")
    process.run_until_idle()
    assert len(proxied.fired) == 2
    assert calls == ONCE
    assert Delivery.objects.get().state == State.DONE


@pytest.mark.mysql
@pytest.mark.parametrize("statement", [COMMIT, CLAIM, b"UPDATE `ems_retry_msg`"])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_retry_is_claimed_once_whatever_is_lost(proxied, process, calls, fault, statement):
    Process("mail").claim(3, LONG_AFTER)
    Consumer.objects.all().delete()
    sweep("default")
    process.client.register()
    advance(LONG_AFTER)
    process.client.register()
    getattr(proxied, fault)(statement)
    process.run_until_idle()
    assert proxied.fired == [statement]
    assert sorted(calls) == [(0, 2), (1, 2), (2, 2)]
    retries = Delivery.objects.filter(kind=Kind.RETRY)
    assert [d.state for d in retries] == [State.DONE] * 3
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize(
    "statement",
    [
        b"WHERE `ems_retry_msg`.`id` =",  # the row is read, as a part of the claim
        b"UPDATE `ems_topic_group_log` SET `started_at`",  # it is noted as started
        b"SELECT `offset`",  # its body is read
    ],
)
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_claimed_retry_is_not_dropped_when_a_reply_is_lost(
    proxied, process, calls, fault, statement
):
    """It would wait for its deadline, and could lose an attempt that was never made."""
    Process("mail").claim(3, LONG_AFTER)
    Consumer.objects.all().delete()
    sweep("default")
    advance(LONG_AFTER)
    process.client.register()
    getattr(proxied, fault)(statement)
    process.run_until_idle()
    assert proxied.fired == [statement]
    assert sorted(calls) == [(0, 2), (1, 2), (2, 2)]
    assert not Delivery.objects.open().exists()


@pytest.mark.mysql
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_an_acknowledgement_is_made_once_whatever_is_lost(proxied, process, calls, fault):
    getattr(proxied, fault)(SETTLE)
    process.run_until_idle()
    assert proxied.fired == [SETTLE]
    assert calls == ONCE
    assert Delivery.objects.get().state == State.DONE
    assert not RetryMessage.objects.exists()


@pytest.mark.mysql
@pytest.mark.parametrize("error", [ValueError(), Retry(delay=60), Reject("no")])
@pytest.mark.parametrize("statement", [COMMIT, SETTLE])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_failure_is_written_once_whatever_is_lost(proxied, error, fault, statement):
    @consumer("orders", group="mail")
    def handle(message):
        getattr(proxied, fault)(statement)
        raise error

    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    assert proxied.fired == [statement]
    ended = Delivery.objects.get()
    assert (ended.state, ended.failed) == (State.RETRY, 1)
    if isinstance(error, Reject):
        assert DeadMessage.objects.count() == 1
    else:
        assert RetryMessage.objects.get().attempt == 2
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("read", [b"COUNT(*)", b"SELECT `offset`, `key`"])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_failure_that_holds_its_key_is_written_once_whatever_is_lost(proxied, calls, fault, read):
    """Before it is written, EMS reads how many messages may be parked, and the keys."""

    @consumer("orders", group="mail", ordered="key")
    def handle(message):
        calls.append(message.body)
        if message.body == "a0":
            getattr(proxied, fault)(read)
            raise Retry(delay=60)

    process = Process("mail")
    send_many([Outgoing("orders", body, key=body[0]) for body in ("a0", "a1", "b0")])
    process.run_until_idle()
    assert proxied.fired == [read]
    assert not Delivery.objects.open().exists()
    assert calls == ["a0", "b0"]
    waiting = RetryMessage.objects.order_by("offset").values_list("offset", "attempt")
    assert list(waiting) == [(0, 2), (1, 1)]
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("statement", [COMMIT, SETTLE])
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_what_an_atomic_handler_writes_happens_once_whatever_is_lost(
    proxied, fault, batch, statement
):
    @consumer("orders", group="mail", atomic=True, batch=batch)
    def handle(messages):
        for message in messages if batch else [messages]:
            Order.objects.create(number=f"{message.offset}, attempt {message.attempt}")
            if message.offset == 1 and message.attempt == 1:
                getattr(proxied, fault)(statement)

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    process.run_until_idle()
    assert proxied.fired == [statement]
    if fault == "lose_reply_to" and statement == COMMIT:
        # It was committed, so it is done.
        written = set(Order.objects.values_list("number", flat=True))
        assert written == {"0, attempt 1", "1, attempt 1", "2, attempt 1"}
        assert not RetryMessage.objects.exists()
        assert Delivery.objects.get().state == State.DONE
    consume_the_rest("mail")
    numbers = Order.objects.values_list("number", flat=True)
    assert sorted(number[0] for number in numbers) == ["0", "1", "2"]
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_sweep_takes_a_delivery_once_whatever_is_lost(proxied, process, fault):
    process.claim(3, LONG_AFTER)
    Consumer.objects.all().delete()
    getattr(proxied, fault)(COMMIT)
    sweep("default")
    assert proxied.fired == [COMMIT]
    assert Delivery.objects.get().state == State.RETRY
    found = sorted(RetryMessage.objects.values_list("offset", "attempt"))
    assert found == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.mysql
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_what_is_given_back_is_given_back_once_whatever_is_lost(proxied, fault):
    @consumer("orders", group="mail")
    def handle(message):
        stopping.lifecycle.stop()
        getattr(proxied, fault)(COMMIT)

    stopping = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    stopping.worker.step()
    assert proxied.fired == [COMMIT]
    assert given_back() == [(1, 2)]
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("statement", [COMMIT, b"INSERT INTO `ems_client`"])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_client_registers_once_whatever_is_lost(proxied, process, fault, statement):
    getattr(proxied, fault)(statement)
    process.client.register()
    mine = Consumer.objects.filter(client_id=process.client.client_id)
    assert mine.count() == 1
    assert process.client.renew()


@pytest.mark.mysql
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_a_group_is_created_once_whatever_is_lost(proxied, fault):
    consumer("orders", group="mail")(print)
    send("orders", 1)
    getattr(proxied, fault)(COMMIT)
    Process("mail")
    assert proxied.fired == [COMMIT]
    assert (ConsumerGroup.objects.count(), Cursor.objects.count()) == (1, 1)


# -- lost connections --------------------------------------------------------------------------

BODIES = ["good", "shaky", "odd", "good"]


def handle_one(message):
    Handled.objects.create(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value=message.body,
    )
    if message.body == "odd":
        raise Reject("odd")
    if message.body == "shaky" and message.attempt == 1:
        raise Retry(delay=0)


@pytest.mark.mysql
@strides(13)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
@pytest.mark.timeout(400)
def test_a_connection_may_be_lost_at_any_statement(second_connection, atomic, done, stride):
    """And the worker carries on with another one."""
    session = second_connection()
    for point in count(1, stride):
        name = f"orders-{point}"
        registry._registered.clear()
        consumer(name, group=name, atomic=atomic, max_retries=4)(handle_one)
        process = Process(name)
        send_many([Outgoing(name, body) for body in BODIES])
        with Severed(point, session, done=done) as severed:
            sequence("default")
            while process.worker.step() in (0.0, AFTER_ERROR_SECONDS):
                pass
            lifecycle, shortage = process.lifecycle, process.shortage
            Keeper("heartbeat", process.heartbeat.step, lifecycle, shortage)._guarded_step()
        process.client.deregister()
        consume_the_rest(name)
        group = {"group__name": name}
        assert DeadMessage.objects.filter(**group).count() == 1
        cursor = Cursor.objects.select_related("partition").get(**group)
        assert cursor.next_offset == cursor.partition.next_offset == len(BODIES)
        times = Counter(Handled.objects.filter(group=name).values_list("offset", flat=True))
        for offset, body in enumerate(BODIES):
            if body != "odd":
                assert times[offset] == 1 if atomic else times[offset] >= 1, (point, times)
            elif atomic:
                assert not times[offset]
        if not severed.fired:
            break
    assert point > 30
    assert audit("default") == []


# The handler writes in a transaction of its own, so that a lost reply shows as a second row.
WORKING = """
import sys, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="mail", batch=5)
def handle(messages):
    Handled.objects.bulk_create(
        Handled(group="mail", topic="orders", partition=0, offset=m.offset, value=m.attempt)
        for m in messages
    )

call_command("ems_consume", "--start", "earliest", *sys.argv[1:])
"""


def handled():
    return Handled.objects.filter(group="mail").values("offset").distinct().count()


def more_than(count: int) -> bool:
    return bool(handled() > count)


@pytest.mark.mysql
def test_a_consumer_survives_that_all_its_connections_are_killed(
    spawn, second_connection, ems_settings
):
    ems_settings(POLL_SECONDS=0.05, RETRY_DELAYS=[0.1])
    session = second_connection()
    child = spawn(WORKING, "--threads", "3")
    for round_ in range(1, 6):
        send_many([Outgoing("orders", n) for n in range(40)])
        wait_for(partial(more_than, 40 * (round_ - 1)))
        kill_other_connections(session)
    wait_for(lambda: handled() == 200)
    wait_for(lambda: not Delivery.objects.open().exists())
    assert child.process.poll() is None
    child.terminate()
    child.succeed()
    consumer("orders", group="mail", batch=5)(lambda messages: None)
    consume_the_rest("mail")
    assert audit("default") == []


@pytest.mark.mysql
def test_a_consumer_survives_a_restart_of_the_server(proxied, spawn, ems_settings, monkeypatch):
    ems_settings(POLL_SECONDS=0.05, RETRY_DELAYS=[0.1])
    child = spawn(WORKING, "--threads", "3")
    send_many([Outgoing("orders", n) for n in range(100)])
    wait_for(lambda: handled() > 0)

    def refuse():
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(proxied, "connect", refuse)
        proxied.kill_connections()
        connection.close()
        down_since = time.monotonic()
        wait_for(lambda: time.monotonic() - down_since > 1.5)
    send_many([Outgoing("orders", n) for n in range(100)])
    wait_for(lambda: handled() == 200)
    # What was handled but not noted when the server went is tried again, and then it is done.
    wait_for(lambda: not Delivery.objects.open().exists() and not RetryMessage.objects.exists())
    assert child.process.poll() is None
    child.terminate()
    child.succeed()
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("comes_back", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_consumer_that_is_started_while_the_database_is_away_waits_for_it(
    proxied, spawn, monkeypatch, comes_back
):
    send("orders", 1)
    connection.close()
    refused = threading.Event()

    def refuse():
        refused.set()
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(proxied, "connect", refuse)
        child = spawn(WORKING, "--threads", "1")
        child.expect("The database is unavailable")
        assert refused.is_set()
        if not comes_back:  # a stop ends it at once
            child.terminate()
            assert child.wait() == -signal.SIGTERM
            return
    child.expect("database connections")
    wait_for(lambda: handled() == 1)
    child.terminate()
    child.succeed()


@pytest.mark.mysql
@pytest.mark.one_server  # the MariaDB of the tests has no certificate
def test_the_end_of_a_tls_connection_is_that_of_any_other(second_connection, monkeypatch):
    """The client library has a number of its own for it."""
    session = second_connection()
    by_mysqlclient = os.environ.get("EMS_TEST_DRIVER") != "pymysql"
    required: dict[str, object] = {"ssl": {"check_hostname": False}}
    if by_mysqlclient:
        required = {"ssl_mode": "REQUIRED", "ssl": {"cipher": None}}
    for name, value in required.items():
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], name, value)
    connection.close()
    send("orders", "first")
    with connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        assert cursor.fetchone()[1]
    session.execute(f"KILL {connection.connection.thread_id()}")
    assert sequence("default").sequenced == 1
    session.execute(f"KILL {connection.connection.thread_id()}")
    with pytest.raises(SendOutcomeUnknown) as raised:
        send("orders", "second")
    assert not by_mysqlclient or "TLS" in str(raised.value.__cause__)
    connection.close()


@pytest.mark.exhaustive
@pytest.mark.mysql
@pytest.mark.slow
def test_a_consumer_whose_connections_are_swallowed_ends_so_that_a_fresh_one_works(
    spawn, ems_settings
):
    """As by a firewall that has forgotten them: no error ever comes, and no answer."""
    ems_settings(POLL_SECONDS=0.05, DRAIN_SECONDS=1)
    impatient = "from streams.process import supervisor; supervisor.SILENT_SECONDS = 3\n"
    variable = f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"
    url = urlsplit(os.environ[variable])
    relay = Relay(url.hostname or "127.0.0.1", url.port or 3306)
    relay.start()
    account = url.netloc.rpartition("@")[0]
    env = {variable: f"mysql://{account}@127.0.0.1:{relay.port}/"}
    try:
        child = spawn(impatient + WORKING, "--threads", "1", env=env)
        send("orders", 1)
        wait_for(lambda: handled() == 1)
        relay.swallow()
        assert child.wait() == 1
        assert "has not answered" in child.text()
        send("orders", 2)
        child = spawn(WORKING, "--threads", "1", env=env)
        wait_for(lambda: handled() == 2)
        child.terminate()
        child.succeed()
    finally:
        relay.stop()


# -- Redis -------------------------------------------------------------------------------------

# Without a wake-up it looks every 30 s; without QUICK_SECONDS also from the start.
SLEEPY = """
from streams.deliver import poller
from streams.process import pool
poller.QUICK_SECONDS = 30
pool.LOOK_SECONDS = 30
"""


def first_look_is_over():
    """The consumer has looked once and sleeps for 30 s."""
    wait_for(Consumer.objects.exists)
    wait_for(lambda: wakeup._redis().pubsub_numsub(wakeup.channel("default"))[0][1])


def latency(body):
    """Seconds from the commit to the row of the handler."""
    started = time.monotonic()
    before = handled()
    with transaction.atomic():
        send("orders", body)
    wait_for(lambda: handled() > before)
    return time.monotonic() - started


@pytest.mark.redis
def test_with_redis_a_message_arrives_long_before_the_next_poll(spawn, ems_settings):
    ems_settings(REDIS="redis", POLL_SECONDS=30)
    spawn(SLEEPY + WORKING, "--threads", "1")
    first_look_is_over()
    for n in range(5):
        assert latency(n) < 2
    wakeup._redis().flushall()
    for n in range(3):
        assert latency(n) < 2
    assert not Message.objects.inbox().exists()


@pytest.mark.redis
def test_a_fork_of_a_producer_announces_too(ems_settings, spawn):
    ems_settings(REDIS="redis", POLL_SECONDS=30)
    spawn(SLEEPY + WORKING, "--threads", "1")
    first_look_is_over()
    assert latency("from the parent") < 2  # its thread runs, and a fork does not inherit it

    def produce():
        send("orders", "from the fork")
        wakeup._announcer.flush()

    started = time.monotonic()
    assert in_fork(produce) == 0
    wait_for(lambda: handled() == 2)
    assert time.monotonic() - started < 2


@pytest.mark.redis
def test_redis_may_go_away_and_come_back(spawn, ems_settings, relay):
    ems_settings(REDIS="redis", POLL_SECONDS=0.5)
    child = spawn(WORKING, "--threads", "1", env={"EMS_TEST_REDIS_URL": redis_url(relay)})
    assert latency("before") < 20
    relay.stop()
    for n in range(3):
        assert latency(n) < 20  # found by polling
    child.expect("Redis is unavailable")
    relay.start()
    assert latency("after") < 20
    child.terminate()
    child.succeed()
    assert audit("default") == []


@pytest.mark.redis
@pytest.mark.parametrize("how", [pytest.param("refused", marks=pytest.mark.exhaustive), "silent"])
def test_a_consumer_that_starts_without_redis_polls(spawn, ems_settings, relay, how):
    ems_settings(REDIS="redis", POLL_SECONDS=0.2)
    relay.stop() if how == "refused" else relay.silence()
    child = spawn(WORKING, "--threads", "1", env={"EMS_TEST_REDIS_URL": redis_url(relay)})
    assert latency(1) < 20
    assert latency(2) < 20
    child.terminate()
    child.succeed()


@pytest.mark.redis
@pytest.mark.parametrize("how", ["refused", "silent", "stopped later"])
def test_a_send_never_waits_for_a_dead_redis(ems_settings, relay, how):
    ems_settings(REDIS="redis")
    send("orders", "the topic is created, the thread started")
    if how == "silent":
        relay.silence()
    elif how == "refused":
        relay.stop()
    for n in range(50):
        if how == "stopped later" and n == 10:
            relay.stop()
        started = time.monotonic()
        with transaction.atomic():
            send("orders", n)
        assert time.monotonic() - started < 1
    consumer("orders", group="mail")(lambda message: None)
    assert drain("mail").done == 51


@pytest.mark.redis
@pytest.mark.parametrize("how", [pytest.param("refused", marks=pytest.mark.exhaustive), "silent"])
def test_a_producer_ends_at_once_although_redis_is_dead(spawn, ems_settings, relay, how):
    ems_settings(REDIS="redis")
    relay.stop() if how == "refused" else relay.silence()
    code = (
        "import time\nfrom streams import send\nsend('orders', 1)\n"
        "print('sent', time.monotonic())\n"
    )
    child = spawn(code, env={"EMS_TEST_REDIS_URL": redis_url(relay)})
    sent_at = float(child.expect("sent").split()[1])
    child.succeed()
    assert time.monotonic() - sent_at < 5


@pytest.mark.redis
@pytest.mark.parametrize("redis", [None, "redis"])
def test_a_callback_after_the_commit_exists_only_for_redis(ems_settings, redis):
    ems_settings(REDIS=redis)
    send("orders", "so that the topic is there")
    with transaction.atomic():
        send("orders", 1)
        send_many([Outgoing("orders", 2)])
        assert bool(connection.run_on_commit) == (redis is not None)


def test_without_redis_no_thread_is_started(monkeypatch):
    monkeypatch.setattr(wakeup, "_announcer", wakeup.Announcer())
    send("orders", 1)
    assert wakeup._announcer._thread is None

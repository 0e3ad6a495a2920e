"""Consumers of topics on two databases: one that is away stops only its own workers. Real processes
of ``ems_consume``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections

from streams import Outgoing, SendOutcomeUnknown, send, send_many
from streams.models import Consumer, ConsumerGroup, Cursor, Delivery, State
from streams.observe.audit.walk import audit
from tests.faults import Relay
from tests.hostapp.models import Handled
from tests.packages import Programs
from tests.processes import Spawn, wait_for
from tests.servers import MariaDB, MySQL, Server, memory_or_disk

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

CONSUMER = """
import sys, time
from streams import consumer, send
from tests.hostapp.models import Handled
from django.core.management import call_command

def handle(message):
    Handled.objects.create(group="begun", topic=message.topic, partition=0, offset=message.offset)
    if message.body == "send":
        time.sleep(0.3)
        send("clicks", "sent", using="other")
    while message.body == "wait" and not Handled.objects.filter(group="go").exists():
        time.sleep(0.01)
    Handled.objects.create(group="ended", topic=message.topic, partition=0, offset=message.offset)

consumer("orders", group="mail", start="earliest")(handle)
consumer("clicks", group="count", STARTS)(handle)
"""
RUN = 'call_command("ems_consume", *sys.argv[1:])\n'
PLAIN = CONSUMER.replace("STARTS", "start='earliest'") + RUN

IMPATIENT = """
from streams.process import supervisor
from streams.process.shared.stopping import Stopping
supervisor.SILENT_SECONDS = 2
fail = Stopping.fail

def say(self, reason):
    print("failing:", reason)
    fail(self, reason)

Stopping.fail = say
"""


def handled(topic: str, what: str = "ended") -> int:
    return Handled.objects.filter(group=what, topic=topic).values("offset").distinct().count()


def let_go() -> None:
    Handled.objects.create(group="go", topic="", partition=0, offset=0)


@pytest.fixture(autouse=True)
def sharded(ems_settings: Callable[..., None]) -> None:
    ems_settings(SHARDS={"clicks": "other"}, POLL_SECONDS=0.05)


def url_of(host: str, port: int) -> str:
    url = urlsplit(os.environ[f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"])
    return f"mysql://{url.netloc.rpartition('@')[0]}@{host}:{port}/"


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Let child processes reach the alias ``other`` through it; this process has its own way."""
    given = connections["other"].settings_dict
    relay = Relay(given["HOST"], int(given["PORT"] or 3306))
    relay.start()
    monkeypatch.setenv("EMS_TEST_OTHER_URL", url_of("127.0.0.1", relay.port))
    yield relay
    relay.stop()


def sound() -> bool:
    return audit("default") == audit("other") == []


@pytest.mark.mysql
def test_a_shard_that_is_away_stops_only_its_own_workers(spawn: Spawn, link: Relay) -> None:
    link.stop()
    for _round in range(2):
        send("orders", 1)
        send("clicks", 1, using="other")
    child = spawn(PLAIN, "--metrics", "0")
    (metrics,) = re.findall(r"http://\S+", child.expect("Metrics: "))
    child.expect("The database other is unavailable")
    wait_for(lambda: handled("orders") == 2)
    assert handled("clicks") == 0
    link.start()
    child.expect(" on other: ")
    wait_for(lambda: handled("clicks") == 2)
    with urlopen(metrics, timeout=30) as answer:  # noqa: S310 - our own child
        text = answer.read().decode()
    assert len(re.findall(r"^ems_consumer_info{.*} 1", text, re.MULTILINE)) == 2
    assert 'ems_workers{group="count",topic="clicks"}' in text
    assert 'ems_workers{group="mail",topic="orders"}' in text

    link.stop()
    child.expect("-other: the database is unavailable")
    send("clicks", 2, using="other")
    send("orders", 2)
    wait_for(lambda: handled("orders") == 3)
    assert handled("clicks") == 2
    link.start()
    wait_for(lambda: handled("clicks") == 3)
    child.terminate()
    child.succeed()
    assert not any(Consumer.objects.using(alias).exists() for alias in ("default", "other"))
    assert sound()


def test_a_drain_ends_when_nothing_is_left_on_any_database(spawn: Spawn) -> None:
    """Also what a handler has sent to the other database after that one was found empty."""
    send_many([Outgoing("orders", "send"), Outgoing("orders", "plain")])
    text = spawn(PLAIN, "--drain").succeed()
    assert (handled("orders"), handled("clicks")) == (2, 1)
    assert "count on clicks (other): 1 handled" in text
    assert re.search(r"Consumer \S+ on default: 4 threads", text)
    assert re.search(r"Consumer \S+ on other: 4 threads", text)
    assert sound()


@pytest.mark.exhaustive
def test_processes_have_a_supervisor_for_each_database(spawn: Spawn) -> None:
    for _ in range(20):
        send("orders", 1)
        send("clicks", 1, using="other")
    child = spawn(PLAIN, "--processes", "2")
    wait_for(lambda: handled("orders") == handled("clicks") == 20)
    for alias in ("default", "other"):
        wait_for(Consumer.objects.using(alias).live()[1:].exists)
    child.terminate()
    child.succeed()
    assert sound()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("only", "other"), [("default", "clicks"), ("other", "orders")])
def test_one_database_may_be_chosen(spawn: Spawn, only: str, other: str) -> None:
    send("orders", 1)
    send("clicks", 1, using="other")
    spawn(PLAIN, "--drain", "--database", only).succeed()
    assert handled("orders") + handled("clicks") == 1
    assert handled(other) == 0


@pytest.mark.exhaustive
def test_groups_that_cannot_run_on_one_database_leave_the_other_ones_running(spawn: Spawn) -> None:
    send("orders", 1)
    send("clicks", 1, using="other")
    unsaid = CONSUMER.replace("STARTS", "start=None") + RUN
    text = spawn(unsaid, "--drain").succeed()
    assert "count on clicks is left out" in text
    assert handled("orders") == 1

    child = spawn(unsaid, "--drain", "--topic", "clicks")
    assert child.wait() == 1
    assert "is new, and the topic holds" in child.text()


@pytest.mark.mysql
@pytest.mark.exhaustive
def test_a_database_that_refuses_this_process_ends_it(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not away: a new process, with the right password, is the remedy."""
    given = connections["other"].settings_dict
    port = int(given["PORT"] or 3306)
    monkeypatch.setenv("EMS_TEST_OTHER_URL", f"mysql://nobody:wrong@127.0.0.1:{port}/")
    child = spawn(PLAIN)
    assert child.wait() == 1
    assert "Stopped after a failure: OperationalError" in child.text()
    assert not Consumer.objects.using("default").exists()


@pytest.mark.mysql
@pytest.mark.exhaustive
def test_a_shard_that_hangs_holds_up_no_handler_at_the_end(
    spawn: Spawn, link: Relay, ems_settings: Callable[..., None]
) -> None:
    ems_settings(DRAIN_SECONDS=5)
    send("orders", "wait")
    send("clicks", "wait", using="other")
    child = spawn(PLAIN)
    wait_for(lambda: handled("orders", "begun") == handled("clicks", "begun") == 1)
    link.swallow()
    child.terminate()
    child.expect("Stopping")
    let_go()
    wait_for(lambda: Delivery.objects.using("default").filter(state=State.DONE).exists())
    wait_for(lambda: not Consumer.objects.using("default").exists(), timeout=4)  # not after drain
    assert child.process.poll() is None
    assert child.wait(30) == 1  # the worker of the other one waits for its database


@pytest.mark.mysql
@pytest.mark.exhaustive
def test_a_database_that_answers_no_more_ends_the_process_and_the_others_are_drained(
    spawn: Spawn, link: Relay, ems_settings: Callable[..., None]
) -> None:
    ems_settings(DRAIN_SECONDS=30)
    send("orders", "wait")
    send("clicks", 1, using="other")
    child = spawn(IMPATIENT + PLAIN)
    wait_for(lambda: handled("orders", "begun") == handled("clicks") == 1)
    link.swallow()
    child.expect("failing: the database has not answered the thread ems-heartbeat-other for 2 s")
    let_go()
    assert child.wait() == 1
    assert Delivery.objects.using("default").get().state == State.DONE
    assert not Consumer.objects.using("default").exists()


# -- two servers --

LAGS = """
import sys, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def handle(message):
    lag = time.time() - message.body
    Handled.objects.create(group="ended", topic=message.topic, partition=0, offset=message.offset,
                           value=f"{lag:.3f}")

consumer("orders", group="mail", start="earliest")(handle)
consumer("clicks", group="count", start="earliest")(handle)
call_command("ems_consume", *sys.argv[1:])
"""
AWAY_SECONDS = 5.0


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Put the alias ``other`` on a server of its own, here and in children."""
    import MySQLdb  # the quick tests run where it is not installed, too

    kind = os.environ["EMS_TEST_DB"]
    server = {"mysql": MySQL, "mariadb": MariaDB}[kind](Programs.find(kind), memory_or_disk(1))
    given = connections["other"].settings_dict
    connections["other"].close()
    try:
        server.prepare()
        server.start()
        server.wait()
        session = MySQLdb.connect(host="127.0.0.1", port=server.port, user="root")
        session.query(f"CREATE DATABASE `{given['NAME']}`")
        session.close()
        monkeypatch.setenv("EMS_TEST_OTHER_URL", server.url)
        with monkeypatch.context() as patch:
            patch.setitem(given, "HOST", "127.0.0.1")
            patch.setitem(given, "PORT", str(server.port))
            call_command("migrate", database="other", run_syncdb=True, verbosity=0)
            yield server
            connections["other"].close()
    finally:
        server.stop()


def lags(topic: str) -> list[float]:
    rows = Handled.objects.filter(topic=topic).order_by("pk")
    return [float(lag) for lag in rows.values_list("value", flat=True)]


@pytest.mark.mysql
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_the_other_groups_go_on_while_a_server_is_killed(spawn: Spawn, own_server: Server) -> None:
    sent = {"orders": 0, "clicks": 0, "refused": 0}

    def send_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            send("orders", time.time())
            sent["orders"] += 1
            try:
                send("clicks", time.time(), using="other")
                sent["clicks"] += 1
            except (SendOutcomeUnknown, OperationalError):
                sent["refused"] += 1
                connections["other"].close()
            time.sleep(0.02)

    child = spawn(LAGS)
    send_for(0.1)
    wait_for(lambda: all(handled(topic) == sent[topic] for topic in ("orders", "clicks")))
    begun = handled("orders")
    assert own_server.process
    own_server.process.kill()
    own_server.process.wait()
    send_for(AWAY_SECONDS)
    assert sent["refused"] > 10
    own_server.start()
    own_server.wait()
    send_for(1)
    wait_for(lambda: handled("orders") == sent["orders"])
    wait_for(lambda: handled("clicks") >= sent["clicks"])  # what was refused may be there
    wait_for(lambda: not Delivery.objects.using("other").open().exists())
    assert child.process.poll() is None
    child.terminate()
    child.succeed()
    assert max(lags("orders")[begun:]) < 1.0
    for alias in ("default", "other"):
        cursor = Cursor.objects.using(alias).select_related("partition").get()
        assert cursor.next_offset == cursor.partition.next_offset
        assert ConsumerGroup.objects.using(alias).count() == 1
    assert sound()

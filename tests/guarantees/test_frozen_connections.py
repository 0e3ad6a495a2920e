"""A firewall that forgets a connection: no error comes, and no answer, on this one connection."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from streams import consumer, send
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, State
from streams.process.shared import connections as shared
from streams.process.shared.connections import IdleLimit
from tests.consuming import Process
from tests.faults import Once, statements
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

CONSUMER = """
import time
from streams import consumer
from streams.process import supervisor
from tests.hostapp.models import Handled
from django.core.management import call_command
supervisor.WORK_SECONDS = 2

def note(what, message):
    Handled.objects.create(group=what, topic=message.topic, partition=0, offset=message.offset,
                           value=message.attempt)

@consumer("orders", group="mail", atomic=ATOMIC)
def handle(message):
    note("begun", message)
    while message.body == "slow" and not Handled.objects.filter(group="go").exists():
        time.sleep(SLEEP)
    note("ended", message)

call_command("ems_consume", "--threads", "2", "--start", "earliest")
"""


def noted(what: str) -> int:
    return Handled.objects.filter(group=what).count()


@pytest.mark.mysql
@pytest.mark.slow
@pytest.mark.parametrize("atomic", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_worker_whose_connection_is_frozen_ends_its_process(
    atomic: bool, proxied: Proxy, spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    """The heartbeat has a connection of its own, which answers."""
    ems_settings(POLL_SECONDS=0.05, DRAIN_SECONDS=600)
    send("orders", "quick")
    proxied.freeze_at(b"SET `progress`")  # the settlement
    child = spawn(CONSUMER.replace("ATOMIC", str(atomic)).replace("SLEEP", "1"))
    child.expect("has not answered the thread worker-")
    assert child.wait() == 1
    assert proxied.fired
    assert not Consumer.objects.exists()
    assert Delivery.objects.get().state == State.START  # nothing is acknowledged


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_handler_that_runs_long_is_no_database_work(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    send("orders", "slow")
    code = CONSUMER.replace("ATOMIC", "False").replace("WORK_SECONDS = 2", "WORK_SECONDS = 0.5")
    child = spawn(code.replace("SLEEP", "3"))  # it asks the database nothing for 3 s
    wait_for(lambda: noted("begun") == 1)
    with pytest.raises(AssertionError, match="does not end"):
        child.wait(4)
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    wait_for(lambda: noted("ended") == 1)
    child.terminate()
    child.succeed()


def test_no_lease_is_extended_beyond_the_settlement_of_its_call() -> None:
    """The settlement hangs, and the heartbeat beats: the lease ends as if the call went on."""
    consumer("orders", group="mail", consume_timeout=60)(lambda message: None)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    lefts = []

    def hang(execute: Callable[[], object]) -> object:
        (handling,) = process.held.all()
        caller = handling._caller
        assert caller.since is not None
        assert handling.time_left() > timedelta(seconds=55)
        caller.since -= 50  # the settlement has hung for 50 s
        process.heartbeat.step()
        lefts.append(Delivery.objects.values_list("deadline", flat=True).get())
        caller.since -= 50
        process.heartbeat.step()
        lefts.append(Delivery.objects.values_list("deadline", flat=True).get())
        assert not process.lifecycle.stopping  # no call hangs
        return execute()

    with statements(Once("UPDATE `ems_topic_group_log`", hang)):
        process.worker.step()
    first, second = lefts
    assert first == second
    claimed = Delivery.objects.get().claimed_at
    assert timedelta(0) < first - claimed < timedelta(seconds=40)


@pytest.mark.mysql
def test_connections_of_a_process_keep_themselves_alive() -> None:
    limit = IdleLimit("default")
    before = dict(connection.settings_dict)
    limit.install()
    try:
        connection.ensure_connection()
        driver = connection.connection
        # mysqlclient has fileno() itself, PyMySQL has a socket.
        source = driver if hasattr(driver, "fileno") else driver._sock
        with socket.socket(fileno=os.dup(source.fileno())) as probe:
            tcp = socket.IPPROTO_TCP
            assert probe.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert probe.getsockopt(tcp, socket.TCP_KEEPIDLE) == shared.KEEPALIVE_SECONDS
            milliseconds = probe.getsockopt(tcp, socket.TCP_USER_TIMEOUT)
            assert milliseconds == shared.UNANSWERED_SECONDS * 1000
    finally:
        connection.close()
        connection.settings_dict.update(before)

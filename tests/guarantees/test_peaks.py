"""At the peak: too few connections, a backlog, and busy workers."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection

from streams import Outgoing, consumer, send, send_many
from streams.database.retrying import connection_lost, retrying, transient
from streams.database.transactions import own_transaction
from streams.deliver.poller import QUICK_SECONDS
from streams.models import Delivery, Partition
from streams.process.shared.connections import KEEPER_PREFIX
from tests.concurrency.locks import wait_until_one_waits
from tests.consuming import Process
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

# Of the server, of an account at one time, of an account by its limits.
TOO_MANY_CONNECTIONS = [1040, 1203, 1226]


@pytest.fixture
def full(monkeypatch):
    """``full(1040, times=3)``: the server refuses the next three connections."""

    def refuse(number: int, *, times: int) -> list[int]:
        refused: list[int] = []
        connect = connection.get_new_connection

        def get_new_connection(parameters):
            if len(refused) < times:
                refused.append(number)
                raise OperationalError(number, "Too many connections")
            return connect(parameters)

        connection.close()
        monkeypatch.setattr(connection, "get_new_connection", get_new_connection)
        return refused

    return refuse


@pytest.mark.parametrize("number", TOO_MANY_CONNECTIONS)
def test_a_consumer_waits_until_there_is_a_connection_for_it(full, number):
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    process = Process("mail")
    send_many([Outgoing("orders", 1)])
    process.poller.step()
    refused = full(number, times=3)
    pauses = [process.worker.step() for _try in range(4)]
    assert pauses == [1.0, 2.0, 4.0, 0.0]
    assert len(refused) == 3
    assert seen == [1]
    assert not process.lifecycle.stopping


@pytest.mark.parametrize("number", TOO_MANY_CONNECTIONS)
def test_a_worker_that_gets_none_for_long_pauses_and_does_not_end(full, number, monkeypatch):
    consumer("orders", group="mail")(print)
    process = Process("mail")
    process.feed.limits()

    def impatient(work, using, *args):
        return retrying(work, using, *args, patience=0)

    monkeypatch.setattr("streams.process.running_group.retrying", impatient)
    process.feed._fresh_until = 0.0
    full(number, times=2)
    assert process.worker.step() > 0.0  # not raised, which would end the process


def test_a_worker_gives_its_connection_to_a_keeper_that_has_none(in_thread):
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send_many([Outgoing("orders", 1)])
    process.poller.step()

    def heartbeat(work):
        threading.current_thread().name = f"{KEEPER_PREFIX}heartbeat"
        work()

    in_thread(heartbeat, lambda: process.shortage.note(OperationalError(1040, ""))).result(10)
    assert process.worker.step() > 0.0
    assert connection.vendor == "sqlite" or connection.connection is None
    assert not Delivery.objects.exists()
    in_thread(heartbeat, process.shortage.over).result(10)
    assert process.worker.step() == 0.0


# Too slow to be read or written, read-only after a failover, a host that is not known for a while,
# killed before the greeting, the end of a TLS connection, a server that is offline.
@pytest.mark.parametrize("number", [1159, 1161, 1836, 1874, 2005, 2007, 2026, 3032])
def test_a_server_that_is_away_is_waited_for_whatever_it_is_called(number):
    assert transient(OperationalError(number, ""))
    assert connection_lost(OperationalError(number, ""))


# KILL QUERY, the time limits of MariaDB and MySQL, ProxySQL without a server.
@pytest.mark.parametrize("number", [1317, 1969, 3024, 9001])
def test_a_statement_that_was_ended_is_made_again_on_the_same_connection(number):
    assert transient(OperationalError(number, ""))
    assert not connection_lost(OperationalError(number, ""))


@pytest.mark.mysql
def test_a_query_that_an_operator_kills_is_made_again(second_connection, in_thread):
    send("orders", 1)
    holder, operator = second_connection(), second_connection()
    holder.execute("BEGIN")
    holder.execute("SELECT `id` FROM `ems_partition` FOR UPDATE")
    told: list[int] = []

    def work():
        told.append(connection.connection.thread_id())
        with own_transaction("default"):
            return len(Partition.objects.select_for_update())

    def run():
        connection.ensure_connection()
        return retrying(work, "default")

    done = in_thread(run)
    wait_until_one_waits(connection.settings_dict["NAME"])
    operator.execute(f"KILL QUERY {told[0]}")
    wait_for(lambda: len(told) == 2, "a second try")
    holder.execute("ROLLBACK")
    assert done.result(60) == 1
    assert len(set(told)) == 1  # on one connection


@pytest.mark.parametrize("number", [1044, 1045, 1049, 1062, 1064, 1146])
def test_what_does_not_pass_by_itself_is_not_waited_for(number):
    assert not transient(OperationalError(number, ""))


@pytest.fixture
def process(ems_settings) -> Process:
    ems_settings(POLL_SECONDS=0.3)
    consumer("orders", group="mail", batch=1)(lambda messages: None)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(50)])
    return process


def pause_after_a_look(process: Process) -> float:
    """What the poller chose; a step may return more, if the look itself took longer."""
    process.poller.step()
    return process.poller._pause


def test_with_a_backlog_and_all_workers_busy_the_poller_slows_down_to_the_setting(process):
    """They look by themselves when they are done: 50 looks a second help nobody."""
    pauses = [pause_after_a_look(process) for _turn in range(9)]
    assert pauses[0] == QUICK_SECONDS  # it has sequenced
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.3
    assert not Delivery.objects.exists()  # the backlog was there all the time


def test_with_a_backlog_and_an_idle_worker_the_poller_hurries(process, in_thread):
    for _turn in range(9):
        process.poller.step()
    process.forget_wake_up()  # the wake-up that is left over
    idle = in_thread(process.pool.wait, 30)
    wait_for(lambda: process.pool._idle)
    assert pause_after_a_look(process) == QUICK_SECONDS
    idle.result(30)

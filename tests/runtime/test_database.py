"""Connections of a consumer process: kept open, and ended by the server when they fall silent."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction

from streams import consumer, send
from streams.consume.registry import registrations
from streams.database.transactions import own_transaction
from streams.log.sequencer import sequence
from streams.models import Consumer, Cursor
from streams.process import supervisor as supervisor_module
from streams.process.shared import connections as ems_connections
from streams.process.shared.connections import IdleLimit
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture(autouse=True)
def connections_as_before():
    """IdleLimit changes the settings of the alias, for the life of its process."""
    before = connections.settings["default"]["CONN_MAX_AGE"]
    yield
    connections.settings["default"]["CONN_MAX_AGE"] = before
    connection.close()


def wait_timeout():
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.wait_timeout")
        return cursor.fetchone()[0]


def test_connections_are_kept_open_between_steps():
    limit = IdleLimit("default")
    limit.install()
    connection.ensure_connection()
    assert connection.close_at is None


@pytest.mark.mysql
def test_a_connection_may_be_silent_for_the_longest_call_and_a_margin():
    limit = IdleLimit("default")
    limit.allow(timedelta(seconds=600))
    limit.allow(timedelta(seconds=60))
    limit.install()
    assert wait_timeout() == 610


def test_a_consumer_that_has_ended_leaves_the_connections_as_the_project_has_them(monkeypatch):
    """A project may drain in its own process: in its tests, or behind a button."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 7)
    consumer("orders", group="mail", start="earliest")(print)
    send("orders", {})
    call_command("ems_consume", "--drain", "--group", "mail", verbosity=0)
    assert connections.settings["default"]["CONN_MAX_AGE"] == 7
    connection.ensure_connection()
    assert connection.close_at is not None
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout = @@GLOBAL.wait_timeout")
            assert cursor.fetchone() == (1,)


def began():
    """Return a supervisor whose keepers run, without workers."""
    consumer("orders", group="mail", start="earliest")(print)
    send("orders", {})
    one = supervisor_module.Supervisor(list(registrations()), "default")
    one.begin()
    one._listener.start()
    return one


def test_who_takes_leave_late_does_so_on_the_connections_of_consumers(monkeypatch):
    """With those of a project that has AUTOCOMMIT off, nothing of it would be committed."""
    monkeypatch.setattr(supervisor_module, "LEAVE_SECONDS", 0.0)
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    one = began()
    go, deregister = threading.Event(), one._deregister
    monkeypatch.setattr(one, "_deregister", lambda: (go.wait(), deregister()))
    for keeper in one._keepers:
        keeper.start()
    one._lifecycle.stop()
    one.leave()
    for keeper in one._keepers:
        keeper.join()
    one.end()
    go.set()
    one._leaving.join()
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", True)
    connection.close()
    assert not Consumer.objects.live().filter(client_id=one.client_id).exists()


def test_a_beat_that_runs_at_the_end_registers_nobody_again(monkeypatch):
    one = began()
    beats, go, renew = threading.Event(), threading.Event(), one._client.renew

    def late():
        beats.set()
        go.wait()
        return renew()

    monkeypatch.setattr(one._client, "renew", late)
    for keeper in one._keepers:
        keeper.start()
    beats.wait()
    one._lifecycle.stop()
    one.leave()
    one._leaving.join(0.5)
    assert one._leaving.is_alive()
    go.set()
    for keeper in one._keepers:
        keeper.join()
    one.end()
    one._leaving.join()
    assert not Consumer.objects.exists()


@pytest.mark.mysql
def test_a_timeout_that_an_admin_has_lengthened_makes_room_for_itself():
    limit = IdleLimit("default")
    limit.allow(timedelta(seconds=60))
    limit.install()
    assert wait_timeout() == 70
    limit.allow(timedelta(seconds=30))
    assert wait_timeout() == 70
    limit.allow(timedelta(seconds=600))
    assert wait_timeout() == 610


@pytest.mark.mysql
def test_the_lock_of_a_frozen_process_is_free_again_soon(second_connection, monkeypatch):
    monkeypatch.setattr(ems_connections, "MARGIN", timedelta(seconds=1))
    limit = IdleLimit("default")
    limit.install()
    consumer("orders", group="mail")(print)
    Process("mail")
    frozen = second_connection()
    with frozen.active():
        transaction.set_autocommit(False)
        list(Cursor.objects.select_for_update())  # and now it is frozen
    started = time.monotonic()
    with second_connection().active(), transaction.atomic():
        assert list(Cursor.objects.select_for_update())
    assert time.monotonic() - started < 10


@pytest.mark.mysql
def test_an_idle_connection_that_the_server_has_ended_is_opened_again(
    second_connection, monkeypatch
):
    calls: list[Any] = []
    consumer("orders", group="mail")(calls.append)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    second_connection().execute(f"KILL {connection.connection.thread_id()}")
    while process.worker.step() != 0.0:
        assert not calls
    assert len(calls) == 1


def statements_sent() -> int:
    """Return what the server has counted of this connection; the question itself is one."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])


@pytest.mark.mysql
def test_a_transaction_of_ems_takes_one_statement_to_begin_and_one_to_end():
    before = statements_sent()
    with own_transaction("default"):
        list(Cursor.objects.all())
    assert statements_sent() - before == len(["BEGIN", "SELECT", "COMMIT", "SHOW STATUS"])
    with pytest.raises(ZeroDivisionError), own_transaction("default"):
        raise ZeroDivisionError
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


@pytest.mark.mysql
def test_a_transaction_of_ems_begins_on_the_connection_of_the_moment(proxied):
    """After a reconnect, and with an error of Django's when the connection is lost."""
    with own_transaction("default"):
        pass
    connection.close()
    with own_transaction("default"):
        list(Cursor.objects.all())
    proxied.cut_before(b"BEGIN")
    with pytest.raises(OperationalError), own_transaction("default"):
        pass
    connection.close()
    with own_transaction("default"):
        list(Cursor.objects.all())


@pytest.mark.mysql
def test_a_transaction_of_a_handler_is_begun_as_django_does():
    """A deadlock ends a transaction; what comes after it must not be committed by itself."""
    with own_transaction("default"):
        pass
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.autocommit")
        assert cursor.fetchone() == (0,)

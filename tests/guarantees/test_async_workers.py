"""Async handlers in a real process: one loop for each worker, one connection, and its end."""

from __future__ import annotations

import pytest

from streams import Outgoing, send_many
from streams.models import Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from tests.consuming import given_back
from tests.hostapp.models import Handled
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

CONSUMER = """
import asyncio, sys, threading
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connection
from streams import consumer
from tests.consuming import given_back
from tests.hostapp.models import Handled

async def note(what, message, value):
    await Handled.objects.acreate(
        group=what, topic="orders", partition=0, offset=message.offset, value=value
    )

def session():
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()" if connection.vendor == "mysql" else "SELECT 1")
        return f"{threading.current_thread().name} {cursor.fetchone()[0]}"
"""
RUN = '\ncall_command("ems_consume", "--start", "earliest", *sys.argv[1:])\n'

MANY = """
@consumer("orders", group="mail")
async def handle(message):
    await note("loop", message, id(asyncio.get_running_loop()))
    await note("session", message, await sync_to_async(session)())
"""

SLOW = """
@consumer("orders", group="mail")
async def handle(message):
    await note("begun", message, "")
    while not await Handled.objects.filter(group="go").aexists():
        await asyncio.sleep(0.01)
    await note("ended", message, "")
"""


def values(what: str) -> set[str]:
    return set(Handled.objects.filter(group=what).values_list("value", flat=True))


def handled(what: str) -> int:
    return Handled.objects.filter(group=what).count()


def test_each_worker_has_one_loop_and_its_orm_the_connection_of_the_worker(spawn):
    send_many([Outgoing("orders", n) for n in range(60)])
    spawn(CONSUMER + MANY + RUN, "--drain", "--threads", "3", "--batch", "1").succeed()
    assert handled("loop") == 60
    assert 1 <= len(values("loop")) <= 3
    # One session for each thread, and its name is that of the worker: worker-0 and so on.
    assert {value[:7] for value in values("session")} == {"worker-"}
    assert len({value.split()[0] for value in values("session")}) == len(values("session"))
    assert not any(audit("default"))


def test_a_stop_signal_lets_an_async_call_end_and_gives_the_rest_back_unspent(spawn, ems_settings):
    ems_settings(POLL_SECONDS=0.05)
    send_many([Outgoing("orders", n) for n in range(5)])
    child = spawn(CONSUMER + SLOW + RUN, "--threads", "1", "--claim-seconds", "0")
    wait_for(lambda: handled("begun"))
    child.terminate()
    child.expect("Stopping")
    assert Delivery.objects.open().exists()
    Handled.objects.create(group="go", topic="", partition=0, offset=0, value="")
    child.succeed()
    assert handled("begun") == handled("ended") == 1
    assert Delivery.objects.filter(state=State.RELEASED).count() == 1
    assert given_back() == [(1, 4)]
    assert not RetryMessage.objects.exists()


def test_a_stop_signal_and_drain_seconds_end_a_process_whose_async_call_hangs(spawn, ems_settings):
    ems_settings(DRAIN_SECONDS=0.5)
    send_many([Outgoing("orders", 1)])
    child = spawn(CONSUMER + SLOW + RUN, "--threads", "1")
    wait_for(lambda: handled("begun"))
    child.terminate()
    child.expect("Handlers still run after DRAIN_SECONDS")
    assert child.wait() == 1
    assert handled("ended") == 0

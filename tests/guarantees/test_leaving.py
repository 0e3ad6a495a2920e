"""A consumer that is told to stop while its database cannot be reached stops all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from streams import consumer, send
from streams.models import Consumer, Delivery, State
from streams.observe.audit.walk import audit
from tests import proxy
from tests.consuming import consume_the_rest
from tests.processes import wait_for
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
    pytest.mark.slow,
]

CONSUMER = """
import threading
from streams import consumer
from streams.process import supervisor
from django.core.management import call_command
supervisor.LEAVE_SECONDS = 1

@consumer("orders", group="mail", threads=2)
def handle(message):
    if message.body == "slow":
        print("slow begins")
        threading.Event().wait()

call_command("ems_consume", "--start", "earliest")
"""

# DRAIN_SECONDS and LEAVE_SECONDS are 1 each here; the rest is for a loaded machine.
BOUND_SECONDS = 15


@pytest.fixture
def cable(proxied: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Clear it, and nothing gets through any more, and nobody is told: a cut cable."""
    whole = threading.Event()
    whole.set()
    exactly = proxy._exactly

    def held_up(source, count):
        data = exactly(source, count)
        whole.wait()
        return data

    monkeypatch.setattr(proxy, "_exactly", held_up)
    yield whole
    whole.set()


@pytest.mark.parametrize("body", [pytest.param("quick", marks=pytest.mark.exhaustive), "slow"])
def test_an_end_without_the_database_takes_no_longer_than_it_may(spawn, cable, ems_settings, body):
    ems_settings(DRAIN_SECONDS=1, POLL_SECONDS=0.05)
    send("orders", body)
    child = spawn(CONSUMER)
    if body == "slow":
        child.expect("slow begins")
    else:
        wait_for(Delivery.objects.filter(state=State.DONE).exists)
    assert Consumer.objects.exists()
    cable.clear()
    child.terminate()
    started = time.monotonic()
    status = child.wait(BOUND_SECONDS)
    assert time.monotonic() - started < BOUND_SECONDS
    # A worker that was about to look for more is left behind, too.
    assert status in ((0, 1) if body == "quick" else (1,))

    cable.set()
    assert Consumer.objects.exists()  # it could not say goodbye: its lease ends by itself
    consumer("orders", group="mail")(lambda message: None)
    consume_the_rest("mail")
    assert audit("default") == []


def test_a_second_signal_without_the_database_ends_it_too(spawn, cable, ems_settings):
    ems_settings(POLL_SECONDS=0.05)
    send("orders", "slow")
    child = spawn(CONSUMER)
    child.expect("slow begins")
    cable.clear()
    child.terminate()
    child.expect("Stopping")
    child.terminate()
    assert child.wait(BOUND_SECONDS) == 1

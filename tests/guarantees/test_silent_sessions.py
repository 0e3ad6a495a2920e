"""A frozen process may hold a lock: how long the server lets its sessions be silent."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue

import pytest
from django.db import connection, connections

from streams import consumer, send
from streams.log.sequencer import sequence
from streams.process.keeper import Keeper
from streams.process.shared.connections import IdleLimit
from streams.process.shared.shortage import Shortage
from streams.process.shared.stopping import Stopping
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
]

HOUR = 3600


@pytest.fixture
def idle_limit() -> Iterator[IdleLimit]:
    before = dict(connections.settings["default"])
    limit = IdleLimit("default")
    limit.install()
    yield limit
    connection.close()
    connections.settings["default"].update(before)


def session() -> tuple[int, int]:
    """The limits of this thread's session: silence, and waiting for a row lock, in seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.wait_timeout, @@SESSION.innodb_lock_wait_timeout")
        silence, waiting = cursor.fetchone()
    return silence, waiting


def test_keepers_may_be_silent_for_20_seconds_however_long_calls_may_take(idle_limit):
    """Their locks are the partitions', which everybody needs."""
    consumer("orders", group="report", consume_timeout=HOUR)(print)
    idle_limit.allow(Process("report").feed.consume_timeout())
    seen: Queue[tuple[int, int]] = Queue()

    def look() -> float:
        seen.put(session())
        return HOUR

    keeper = Keeper("poller", look, Stopping(), Shortage("default"))
    keeper.start()
    try:
        assert seen.get(timeout=30) == (20, 2)
    finally:
        keeper.end()
        keeper.join(30)


def test_workers_may_be_silent_for_the_longest_call_and_10_seconds(idle_limit):
    """They hold a lock while user code runs (atomic=True), and must not lose it to the server."""
    seen: Queue[int] = Queue()

    @consumer("orders", group="report", consume_timeout=HOUR)
    def handle(message):
        seen.put(session()[0])

    process = Process("report")
    idle_limit.allow(process.feed.consume_timeout())
    send("orders", 1)
    sequence("default")
    worker = process.new_worker()
    worker.start()
    try:
        assert seen.get(timeout=30) == HOUR + 10
    finally:
        process.lifecycle.stop()
        process.pool.stop()
        worker.join(30)


def test_waiting_for_a_lock_is_shortened_for_keepers_only(idle_limit):
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.innodb_lock_wait_timeout")
        (given,) = cursor.fetchone()
    assert session()[1] == given

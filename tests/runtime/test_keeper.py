"""Keepers: one step after the other, through the troubles of the database, until told to end."""

from __future__ import annotations

import queue
import threading
import time
from itertools import pairwise

import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError

from streams.process import keeper
from streams.process.keeper import Keeper
from streams.process.shared.shortage import Shortage
from streams.process.shared.stopping import Stopping

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def keep(monkeypatch):
    """Start a keeper around a step; it is ended with the test."""
    monkeypatch.setattr(keeper, "AFTER_ERROR_SECONDS", 0.01)
    keepers = []

    def start(step):
        keepers.append(Keeper("test", step, Stopping(), Shortage("default")))
        keepers[-1].start()
        return keepers[-1]

    yield start
    for one in keepers:
        one.end()
        one.join(10)
        assert not one.is_alive()


def test_steps_follow_each_other_after_the_delay_they_ask_for(keep):
    steps: queue.Queue[float] = queue.Queue()
    delays = iter([0.0, 0.0, 60.0])

    def step():
        steps.put(time.monotonic())
        return next(delays)

    keep(step)
    for _ in range(3):
        steps.get(timeout=10)
    with pytest.raises(queue.Empty):
        steps.get(timeout=0.05)


def test_a_wake_up_cuts_the_delay_short(keep):
    steps: queue.Queue[float] = queue.Queue()

    def step():
        steps.put(1)
        return 60.0

    one = keep(step)
    steps.get(timeout=10)
    one.wake()
    steps.get(timeout=10)


def test_whoever_is_woken_all_the_time_rests_half_of_it(keep):
    """A look takes as long as it takes: with Redis the next wake-up is there at its end."""
    times: queue.Queue[tuple[float, float]] = queue.Queue()
    going = threading.Event()

    def step():
        began = time.monotonic()
        going.wait(0.02)  # never set: it takes so long
        times.put((began, time.monotonic()))
        one.wake()
        return 60.0

    one = keep(step)
    steps = [times.get(timeout=10) for _ in range(10)]
    for (began, ended), (next_began, _ended) in pairwise(steps):
        assert next_began - ended >= 0.9 * (ended - began)


def test_a_wake_up_during_a_step_is_not_lost(keep):
    steps: queue.Queue[float] = queue.Queue()
    go_on = threading.Event()

    def step():
        steps.put(1)
        go_on.wait(10)
        return 60.0

    one = keep(step)
    steps.get(timeout=10)
    one.wake()
    go_on.set()
    steps.get(timeout=10)


@pytest.mark.parametrize(
    "error",
    [
        OperationalError(2006, "Server has gone away"),
        OperationalError(2013, "Lost connection"),
        OperationalError(1159, "Got timeout reading communication packets"),
        OperationalError(1205, "Lock wait timeout exceeded"),
        OperationalError("database is locked"),
        InterfaceError(0, ""),
    ],
    ids=str,
)
def test_a_database_that_is_away_is_waited_for(keep, error):
    steps: queue.Queue[float] = queue.Queue()
    errors = iter([error, error])

    def step():
        for one in errors:
            raise one
        steps.put(1)
        return 60.0

    one = keep(step)
    steps.get(timeout=10)
    assert not one._lifecycle.stopping


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ProgrammingError(1146, "no such table")])
def test_anything_else_stops_the_process(keep, error):
    def step():
        raise error

    one = keep(step)
    one.join(10)
    assert one._lifecycle.failure
    assert "test" in one._lifecycle.failure


def test_the_end_does_not_wait_for_the_delay(keep):
    stepped = threading.Event()

    def step():
        stepped.set()
        return 60.0

    one = keep(step)
    assert stepped.wait(10)
    one.end()
    one.join(5)
    assert not one.is_alive()

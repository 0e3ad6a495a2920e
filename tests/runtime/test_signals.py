"""Signals: recorded by the handler, told once each to who waits."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from streams.process.shared.signals import END, STOP, STOP_REQUEST, Signals


@pytest.fixture
def signals():
    # As a process has them that nobody has started with some of them ignored, as nohup does.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (*STOP, signal.SIGUSR1)}
    wakeup_fd = signal.set_wakeup_fd(-1)
    signals = Signals()
    signals.install()
    yield signals
    signal.set_wakeup_fd(wakeup_fd)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_a_signal_the_time_passes(signals):
    started = time.monotonic()
    assert not signals.wait(0.05)
    assert time.monotonic() - started >= 0.04


@pytest.mark.parametrize("number", STOP)
def test_a_stop_signal_is_told_at_once_and_once(signals, number):
    os.kill(os.getpid(), number)
    assert signals.wait(30)
    assert not signals.wait(0)


def test_two_signals_that_came_together_are_told_one_by_one(signals):
    for number in STOP[:2]:
        os.kill(os.getpid(), number)
    assert signals.wait(30)
    assert signals.wait(0)
    assert not signals.wait(0)


def test_other_signals_are_not_told(signals):
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not signals.wait(0.05)


def test_nohup_stays_in_force():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wakeup_fd = signal.set_wakeup_fd(-1)
    signals = Signals()
    try:
        signals.install()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signals.restore()
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def parent():
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with suppress(OSError):
            os.close(fd)


def test_the_request_of_the_parent_and_the_first_signal_are_one(parent):
    child = Signals(parent[0])
    os.write(parent[1], STOP_REQUEST)
    assert child.wait(30)
    os.write(child._writer, bytes([signal.SIGTERM]))
    assert not child.wait(0)
    os.write(child._writer, bytes([signal.SIGTERM]))
    assert child.wait(0)


def test_the_parent_may_ask_to_end_at_once(parent):
    child = Signals(parent[0])
    os.write(parent[1], STOP_REQUEST)
    os.write(parent[1], END)
    assert child.wait(30)
    assert child.wait(0)
    assert not child.wait(0)


def test_the_death_of_the_parent_is_a_request_to_stop(parent):
    child = Signals(parent[0])
    os.close(parent[1])
    assert child.wait(30)
    assert not child.wait(0)

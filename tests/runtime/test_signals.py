"""Signals: recorded by the handler, told once each to who waits."""

from __future__ import annotations

import os
import signal
import time

import pytest

from streams.process.shared.signals import STOP, Signals


@pytest.fixture
def signals():
    before = {number: signal.getsignal(number) for number in (*STOP, signal.SIGUSR1)}
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
    for number in STOP:
        os.kill(os.getpid(), number)
    assert signals.wait(30)
    assert signals.wait(0)
    assert not signals.wait(0)


def test_other_signals_are_not_told(signals):
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not signals.wait(0.05)

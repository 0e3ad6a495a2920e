"""From running to stopped."""

from __future__ import annotations

from streams.process.shared.stopping import Stopping


def test_stopping_is_told_once_to_everyone():
    told: list[str] = []
    lifecycle = Stopping()
    lifecycle.on_stop(lambda: told.append("a"))
    lifecycle.on_stop(lambda: told.append("b"))
    assert told == []
    lifecycle.stop()
    lifecycle.stop()
    assert lifecycle.stopping
    assert told == ["a", "b"]
    assert lifecycle.failure is None


def test_a_failure_stops_and_the_first_reason_stays():
    lifecycle = Stopping()
    lifecycle.fail("the first")
    lifecycle.fail("the second")
    assert lifecycle.stopping
    assert lifecycle.failure == "the first"


def test_a_failure_while_stopping_is_noted_too():
    lifecycle = Stopping()
    lifecycle.stop()
    lifecycle.fail("in the drain")
    assert lifecycle.failure == "in the drain"

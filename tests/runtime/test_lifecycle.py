"""From running to stopped."""

from __future__ import annotations

from streams.runtime.lifecycle import Lifecycle


def test_stopping_is_told_once_to_everyone():
    told: list[str] = []
    lifecycle = Lifecycle()
    lifecycle.on_stop(lambda: told.append("a"))
    lifecycle.on_stop(lambda: told.append("b"))
    assert told == []
    lifecycle.stop()
    lifecycle.stop()
    assert lifecycle.stopping
    assert told == ["a", "b"]
    assert lifecycle.failure is None


def test_a_failure_stops_and_the_first_reason_stays():
    lifecycle = Lifecycle()
    lifecycle.fail("the first")
    lifecycle.fail("the second")
    assert lifecycle.stopping
    assert lifecycle.failure == "the first"


def test_a_failure_while_stopping_is_noted_too():
    lifecycle = Lifecycle()
    lifecycle.stop()
    lifecycle.fail("in the drain")
    assert lifecycle.failure == "in the drain"

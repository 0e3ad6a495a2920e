"""The gate: many handler calls at once, or one alone."""

from __future__ import annotations

import threading

import pytest

from streams.process.shared.gate import Gate
from tests.processes import wait_for


class Caller(threading.Thread):
    """A thread that goes in when it may, says so, and stays until it is told to leave."""

    def __init__(self, way):
        super().__init__(daemon=True)
        self._way = way
        self.inside = threading.Event()
        self._leave = threading.Event()

    def run(self):
        with self._way:
            self.inside.set()
            self._leave.wait(30)

    def leave(self):
        self._leave.set()
        self.join(30)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def enter():
    callers = []

    def start(way):
        caller = Caller(way)
        callers.append(caller)
        caller.start()
        return caller

    yield start
    for caller in callers:
        caller.leave()


def is_kept_out(caller):
    return not caller.inside.wait(0.05)


def test_many_go_in_together(gate, enter):
    for _ in range(5):
        assert enter(gate.together()).inside.wait(10)


def test_who_wants_to_be_alone_waits_for_all_others_to_leave(gate, enter):
    first, second = enter(gate.together()), enter(gate.together())
    assert first.inside.wait(10)
    assert second.inside.wait(10)
    alone = enter(gate.alone())
    assert is_kept_out(alone)
    first.leave()
    assert is_kept_out(alone)
    second.leave()
    assert alone.inside.wait(10)


def test_nobody_goes_in_beside_the_one_who_is_alone(gate, enter):
    alone = enter(gate.alone())
    assert alone.inside.wait(10)
    others = [enter(gate.together()), enter(gate.alone())]
    assert all(is_kept_out(other) for other in others)
    alone.leave()
    for other in others:
        other._leave.set()
    assert all(other.inside.wait(10) for other in others)


def test_newcomers_wait_behind_who_wants_to_be_alone(gate, enter):
    """Otherwise it would never have its turn while there is work for the others."""
    inside = enter(gate.together())
    assert inside.inside.wait(10)
    assert not gate.wanted_alone
    alone = enter(gate.alone())
    assert is_kept_out(alone)
    assert gate.wanted_alone
    newcomer = enter(gate.together())
    assert is_kept_out(newcomer)
    inside.leave()
    assert alone.inside.wait(10)
    assert not gate.wanted_alone
    assert is_kept_out(newcomer)
    alone.leave()
    assert newcomer.inside.wait(10)


def test_who_has_waited_for_one_alone_goes_before_the_next_one(gate, enter):
    """A series of messages that run alone does not keep the others of the group from their turn."""
    first = enter(gate.alone())
    assert first.inside.wait(10)
    waiting, second = enter(gate.together()), enter(gate.alone())
    wait_for(lambda: gate._waiting_together and gate._waiting_alone)
    first.leave()
    assert waiting.inside.wait(10)
    assert is_kept_out(second)
    waiting.leave()
    assert second.inside.wait(10)


def test_at_the_end_nobody_waits_any_more(gate, enter):
    inside = enter(gate.alone())
    assert inside.inside.wait(10)
    others = [enter(gate.together()), enter(gate.alone())]
    wait_for(lambda: gate._waiting_together and gate._waiting_alone)
    gate.end()
    assert all(other.inside.wait(10) for other in others)


def test_several_who_want_to_be_alone_go_in_one_by_one(gate, enter):
    callers = [enter(gate.alone()) for _ in range(3)]
    for _turn in range(3):
        (inside,) = [c for c in callers if c.inside.wait(0.2)]
        callers.remove(inside)
        inside.leave()


def test_calls_that_run_together_take_no_lock(gate, monkeypatch):
    """Thousands begin in a second, in many threads: they would queue for it."""
    monkeypatch.setattr(gate, "_condition", None)
    with gate.together(), gate.together():
        assert len(gate._inside) == 2
    assert not gate._inside


def test_who_goes_in_as_another_one_becomes_alone_waits(gate, enter, monkeypatch):
    alone: list[Caller] = []

    class Inside(set):  # type: ignore[type-arg]
        """Lets somebody become alone just before the first caller is there."""

        def add(self, caller):
            if not alone:
                alone.append(enter(gate.alone()))
                assert alone[0].inside.wait(10)
            super().add(caller)

    monkeypatch.setattr(gate, "_inside", Inside())
    caller = enter(gate.together())
    wait_for(lambda: alone and alone[0].inside.is_set())
    assert is_kept_out(caller)
    alone[0].leave()
    assert caller.inside.wait(10)


@pytest.mark.parametrize("way", ["together", "alone"])
def test_an_error_inside_leaves_the_gate_open(gate, way):
    with pytest.raises(ValueError, match="inside"), getattr(gate, way)():
        raise ValueError("inside")
    with gate.alone():
        pass
    with gate.together():
        pass

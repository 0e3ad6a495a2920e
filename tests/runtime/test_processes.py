"""The parent of several processes: when it starts one again, and when it gives up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from streams.process.processes import CONFIGURATION_STATUS, Place, Processes

# What a process may end with: its exit status, or minus the number of a signal.
FAILED, KILLED, ENDED = 1, -9, 0


@pytest.fixture
def ended() -> Callable[..., Place]:
    """``ended(parent, 1, lived=5)``: the only process of the parent has ended with status 1."""

    def end(parent: Processes, status: int, *, lived: float = 0.0) -> Place:
        (place,) = parent._places
        place.pid, place.pipe = 2**22 + 1, os.open(os.devnull, os.O_WRONLY)
        place.started_at = time.monotonic() - lived
        parent._note_end(place, status)
        return place

    return end


def one(*, drain: bool = False) -> Processes:
    return Processes(1, lambda number, parent, again: 0, drain=drain, recover=lambda: None)


@pytest.fixture(autouse=True)
def _no_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "_start_recovery", lambda parent: None)


def test_the_first_start_is_at_once_and_then_the_pause_doubles_up_to_half_a_minute(ended) -> None:
    parent = one()
    pauses = [round(ended(parent, FAILED).start_at - time.monotonic()) for _turn in range(7)]
    assert pauses == [0, 1, 2, 4, 8, 16, 30]
    assert round(ended(parent, KILLED, lived=61).start_at - time.monotonic()) == 0


def test_a_process_that_ends_without_being_asked_is_started_again(ended) -> None:
    parent = one()
    assert not ended(parent, ENDED).done


def test_a_wrong_configuration_ends_the_parent(ended) -> None:
    parent = one()
    assert ended(parent, CONFIGURATION_STATUS).done
    assert parent._stopping
    assert parent._status == 1


@pytest.mark.parametrize(("status", "expected"), [(ENDED, 0), (FAILED, 1), (KILLED, 1)])
def test_a_process_that_drains_is_not_started_again(ended, status, expected) -> None:
    parent = one(drain=True)
    assert ended(parent, status).done
    assert parent._status == expected


@pytest.mark.parametrize(("status", "expected"), [(ENDED, 0), (FAILED, 1), (KILLED, 1)])
def test_a_stopped_process_that_fails_makes_the_parent_fail(ended, status, expected) -> None:
    parent = one()
    parent._stop()
    assert ended(parent, status).done
    assert parent._status == expected

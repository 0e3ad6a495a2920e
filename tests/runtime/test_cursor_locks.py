"""The locks of a process on the cursors of a group: one thread at a time, in order of coming."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from streams.deliver import cursor_locks
from streams.deliver.cursor_locks import CursorLocks
from tests.processes import PATIENCE_SECONDS, wait_for


@pytest.fixture
def locks() -> Iterator[CursorLocks]:
    locks = CursorLocks()
    yield locks
    assert locks._waiting == {}  # what nobody has takes no memory


def test_threads_are_served_in_the_order_in_which_they_come(locks: CursorLocks) -> None:
    served: list[int] = []

    def claim(number: int) -> None:
        with locks.taken(1, wait=True) as mine:
            assert mine
            served.append(number)

    threads = [threading.Thread(target=claim, args=[number]) for number in range(5)]
    with locks.taken(1, wait=True):
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_for(lambda number=number: len(locks._waiting[1]) == number)  # type: ignore[misc]
        assert served == []
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert served == [0, 1, 2, 3, 4]


def test_who_does_not_wait_is_told_and_takes_nothing(locks: CursorLocks) -> None:
    with locks.taken(1, wait=True):
        with locks.taken(1, wait=False) as mine, locks.taken(2, wait=False) as other:
            assert (mine, other) == (False, True)
        with locks.taken(1, wait=False) as mine:
            assert not mine
    with locks.taken(1, wait=False) as mine:
        assert mine


def test_a_claim_that_fails_gives_its_cursor_back(locks: CursorLocks) -> None:
    with pytest.raises(ZeroDivisionError), locks.taken(1, wait=True):
        raise ZeroDivisionError
    with locks.taken(1, wait=False) as mine:
        assert mine


def test_who_waits_for_long_goes_on_without_its_turn(
    locks: CursorLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder may wait in the server, for as long as a row may be locked there."""
    monkeypatch.setattr(cursor_locks, "PATIENCE_SECONDS", 0.01)
    with locks.taken(1, wait=True):
        with locks.taken(1, wait=True) as mine:
            assert not mine
        assert not locks._waiting[1]


def test_a_turn_that_comes_at_the_last_moment_is_taken(
    locks: CursorLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody would ever give the cursor back."""

    class Turn:
        def acquire(self, timeout: float | None = None) -> bool:
            if timeout is not None:
                locks._give_back(1)
            return False

        def release(self) -> None:
            """Do nothing: it is too late."""

    assert locks._take(1, wait=True)
    monkeypatch.setattr(cursor_locks, "threading", SimpleNamespace(Lock=Turn))
    with locks.taken(1, wait=True) as mine:
        assert mine

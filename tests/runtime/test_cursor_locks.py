"""The locks of a process on the cursors of a group: one thread at a time, in order of coming."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

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

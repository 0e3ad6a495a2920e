"""The pool: which group a thread serves next, and who rests."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streams import consumer
from streams.consume.limits import Overrides
from streams.process import pool as pools
from streams.process.pool import Pool
from streams.process.running_group import RunningGroup
from tests.consuming import registered
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def feed(group: str, threads: int = 8) -> RunningGroup:
    consumer("orders", group=group, threads=threads)(print)
    return RunningGroup(registered("orders", group), "default", Overrides())


class Threads:
    """Calls the pool as so many idle threads do that come one after the other."""

    def __init__(self, pool: Pool, count: int) -> None:
        self.pool, self._free = pool, count

    def take(self) -> RunningGroup | None:
        """Let a free thread ask, beside which the other free ones rest."""
        self.pool._idle = self._free - 1
        found = self.pool.take() if self._free else None
        if found is None:
            return None
        self._free -= 1
        return found.feed

    def end(self, feed: RunningGroup, *, again: bool = False) -> None:
        self.pool.give_back(feed, again=again)
        self._free += 1


def waiting(pool: Pool, seconds: float = 60.0) -> threading.Thread:
    thread = threading.Thread(target=pool.wait, args=(seconds,), daemon=True)
    thread.start()
    return thread


def looked(pool: Pool) -> None:
    """End the first look into each group."""
    while found := pool.take():
        pool.give_back(found.feed, again=False)


# -- which group -------------------------------------------------------------------------------


def test_the_first_look_needs_no_wake_up() -> None:
    pool = Pool([feed("mail")])
    assert pool.wait(60)
    assert pool.take()


def test_a_group_that_was_not_woken_is_not_served() -> None:
    pool = Pool([feed("mail")])
    looked(pool)
    assert pool.take() is None
    assert not pool.wait(0)


def test_a_group_is_looked_into_after_a_while_without_a_wake_up(monkeypatch: Any) -> None:
    monkeypatch.setattr(pools, "LOOK_SECONDS", 0.05)
    pool = Pool([feed("mail")])
    looked(pool)
    assert pool.wait(60)
    assert pool.take()


def test_groups_that_are_far_behind_are_served_in_turn_and_one_that_is_woken_comes_next() -> None:
    a, b, c = feed("a"), feed("b"), feed("c")
    pool = Pool([a, b, c])
    looked(pool)
    pool.wake(a)
    pool.wake(b)
    served = []
    for turn in range(6):
        if turn == 3:
            pool.wake(c)
        wanted = pool.take()
        assert wanted
        served.append(wanted.feed.registration.group)
        pool.give_back(wanted.feed, again=wanted.feed is not c)
    assert "".join(served) == "abacba"


def test_a_group_never_has_more_than_its_threads() -> None:
    a, b = feed("a", threads=2), feed("b", threads=1)
    pool = Pool([a, b])
    threads = Threads(pool, 8)
    served = []
    for _turn in range(8):
        pool.wake(a)
        pool.wake(b)
        if found := threads.take():
            served.append(found)
    assert sorted(f.registration.group for f in served) == ["a", "a", "b"]
    threads.end(a)
    assert threads.take() is a


def test_the_last_free_thread_is_left_for_a_group_that_has_none() -> None:
    a, b, c = feed("a"), feed("b"), feed("c")
    pool = Pool([a, b, c])
    looked(pool)
    threads = Threads(pool, 4)
    taken = []
    for _turn in range(9):
        pool.wake(a)
        taken.append(threads.take())
    assert taken == [a, a, a, *[None] * 6]
    pool.wake(b)
    assert threads.take() is b
    # All are busy. The next free one is for c: neither a nor b may have it while it is the last.
    threads.end(a, again=True)
    assert threads.take() is None
    pool.wake(c)
    assert threads.take() is c


def test_the_only_group_may_have_all_threads() -> None:
    a = feed("a")
    pool = Pool([a])
    threads = Threads(pool, 3)
    for _turn in range(3):
        pool.wake(a)
        assert threads.take() is a


# -- who rests ---------------------------------------------------------------------------------


def test_a_wake_up_wakes_one_thread() -> None:
    mail = feed("mail")
    pool = Pool([mail])
    looked(pool)
    threads = [waiting(pool), waiting(pool)]
    wait_for(lambda: pool._idle == 2)
    assert pool.wake(mail)
    wait_for(lambda: not all(one.is_alive() for one in threads), "one is woken")
    for one in threads:
        one.join(0.05)
    assert sum(one.is_alive() for one in threads) == 1
    pool.stop()
    for one in threads:
        one.join(10)


def test_a_wake_up_before_the_wait_is_not_lost() -> None:
    mail = feed("mail")
    pool = Pool([mail])
    looked(pool)
    assert not pool.wake(mail)  # nobody is idle
    one = waiting(pool)
    one.join(10)
    assert not one.is_alive()


def test_who_takes_a_group_wakes_a_thread_for_the_next_one() -> None:
    """Two wake-ups may reach one thread only."""
    a, b = feed("a"), feed("b")
    pool = Pool([a, b])
    looked(pool)
    one = waiting(pool)
    wait_for(lambda: pool._idle == 1)
    with pool._condition:  # as if the wake-up of another thread were under way
        for share in pool._shares.values():
            share.woken = True
    assert pool.take()
    one.join(10)
    assert not one.is_alive()


def test_nobody_is_woken_for_a_group_that_may_have_no_more() -> None:
    a, b = feed("a", threads=1), feed("b")
    pool = Pool([a, b])
    looked(pool)
    pool.wake(a)
    wanted = pool.take()
    assert wanted
    assert wanted.feed is a
    one = waiting(pool)
    wait_for(lambda: pool._idle == 1)
    assert not pool.wake(a)
    one.join(0.05)
    assert one.is_alive()
    pool.stop()
    one.join(10)


def test_stopping_wakes_all() -> None:
    pool = Pool([feed("mail")])
    looked(pool)
    threads = [waiting(pool) for _ in range(3)]
    pool.stop()
    for one in threads:
        one.join(10)
    assert not any(one.is_alive() for one in threads)

"""Knows the requests of this process that wait: for something to claim, or for the next offset."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from streams.http.pulling.groups import PulledGroup

# A request that was woken, and has found nothing, is not woken for so many seconds by what was
# there before: the group may have something that this client must not get.
REST_SECONDS = 0.25
# Wake-ups of a topic concern this process for so many seconds after the last call of a client. A
# client between two pulls waits for nothing, and yet what is sent meanwhile is for it.
CONCERNS_SECONDS = 60.0


class Waiter:
    """One request that waits; any thread may wake it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rests_until = 0.0
        self._looks = False
        self._called = False
        self.woken = False
        self.leaves_more = False  # it has claimed something, but perhaps not all that there is

    @property
    def sleeps(self) -> bool:
        return not self.woken and not self._looks

    @property
    def rests(self) -> bool:
        return time.monotonic() < self._rests_until

    def wake(self) -> None:
        self.woken = True
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait until it is woken, at most ``seconds``; return whether it was."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def begin(self) -> None:
        """Note that it is about to claim; a wake-up from here on is for another claim."""
        self._looks = True
        self._called, self.woken = self.woken, False
        self._event.clear()

    def found_nothing(self) -> None:
        """Note that what it was woken for has gone to another."""
        if self._called:
            self._rests_until = time.monotonic() + REST_SECONDS
        self._called = self._looks = False

    def found(self) -> None:
        """Note that it has got what it waited for, also if it was woken for that."""
        self._called = False

    @property
    def passes_on(self) -> bool:
        """Tell whether another is to look: it was woken, and goes without, or there may be more."""
        return self.woken or self._called or self.leaves_more


class Waiting:
    """The waiting requests of a process on one database, by group and by partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By group id: the group, and its waiters, the longest waiting first.
        self._groups: dict[int, tuple[PulledGroup, list[Waiter]]] = {}
        # By partition id: waiters with the offset that each of them waits for.
        self._readers: dict[int, list[tuple[int, Waiter]]] = {}
        # By topic: until when its wake-ups concern this process.
        self._concerns: dict[str, float] = {}
        # The topics whose wake-ups concern this process; the listener looks into it.
        self.topics = self._concerns.keys()

    def __bool__(self) -> bool:
        return bool(self._groups or self._readers)

    def groups(self) -> list[PulledGroup]:
        with self._lock:
            return [group for group, _waiters in self._groups.values()]

    def concern(self, topic: str) -> None:
        """Let wake-ups of the topic concern this process for CONCERNS_SECONDS."""
        with self._lock:
            self._concerns[topic] = time.monotonic() + CONCERNS_SECONDS

    def let_go(self) -> None:
        """Forget the topics that no client has asked for in CONCERNS_SECONDS."""
        now = time.monotonic()
        with self._lock:
            for topic in [topic for topic, until in self._concerns.items() if now >= until]:
                del self._concerns[topic]

    @contextmanager
    def for_group(self, group: PulledGroup) -> Iterator[Waiter]:
        """Let a request of the group wait in the block."""
        waiter, pk = Waiter(), group.group.pk
        with self._lock:
            _group, waiters = self._groups.get(pk, (group, []))
            waiters.append(waiter)
            self._groups[pk] = group, waiters
        try:
            yield waiter
        finally:
            with self._lock:
                waiters.remove(waiter)
                if not waiters:
                    del self._groups[pk]
            if waiter.passes_on:
                self.wake_group(pk)

    @contextmanager
    def for_offset(self, partition_id: int, offset: int) -> Iterator[Waiter]:
        """Let a request wait in the block until the partition has a message at ``offset``."""
        waiter = Waiter()
        with self._lock:
            self._readers.setdefault(partition_id, []).append((offset, waiter))
        try:
            yield waiter
        finally:
            with self._lock:
                self._readers[partition_id].remove((offset, waiter))
                if not self._readers[partition_id]:
                    del self._readers[partition_id]

    def wake_group(self, group_id: int, *, news: bool = True) -> bool:
        """Wake one request of the group; return whether there is one to wake.

        It wakes the next one if it leaves something: one message wakes one client. Without
        ``news``, nothing has come since the last look: then no request is woken that has looked in
        vain a moment ago.
        """
        with self._lock:
            _group, waiters = self._groups.get(group_id, (None, ()))
            awake = [one for one in waiters if not one.woken and (news or not one.rests)]
            # One that claims at the moment passes on what it was woken for when it has something.
            chosen = next((one for one in awake if one.sleeps and not one.rests), None)
            chosen = chosen or next((one for one in awake if one.sleeps), None)
            chosen = chosen or next(iter(awake), None)
            if chosen is not None:
                chosen.wake()
        return chosen is not None

    def wake_readers(self, ends: Iterable[tuple[int, int]]) -> bool:
        """Wake all who wait for an offset below the end of its partition: (id, end) each."""
        woken = False
        with self._lock:
            for partition_id, end in ends:
                for offset, waiter in self._readers.get(partition_id, ()):
                    if offset < end and not (waiter.woken or waiter.rests):
                        waiter.wake()
                        woken = True
        return woken


_waiting: dict[str, Waiting] = {}


def waiting(using: str) -> Waiting:
    """Return the requests that wait on ``using``: each database has ids of its own."""
    return _waiting.setdefault(using, Waiting())


# A fork has none of the requests of its parent.
os.register_at_fork(after_in_child=_waiting.clear)

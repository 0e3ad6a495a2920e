"""Knows the requests of this process that wait: for something to claim, or for the next offset."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from streams.http.pulling.groups import PulledGroup

# A request that was woken, and has found nothing, is not woken again for so many seconds.
REST_SECONDS = 0.25


class Waiter:
    """Is one request that waits; any thread may wake it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._rests_until = 0.0
        self._called = False
        self.woken = False
        self.served = False  # it has claimed something, and there may be more

    @property
    def sleeps(self) -> bool:
        return not self.woken and time.monotonic() >= self._rests_until

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
        self._called, self.woken = self.woken, False
        self._event.clear()

    def found_nothing(self) -> None:
        """Note that what it was woken for has gone to another."""
        if self._called:
            self._rests_until = time.monotonic() + REST_SECONDS
        self._called = False

    @property
    def leaves_more(self) -> bool:
        """Tell whether another is to look: it has claimed, or was woken, and went without."""
        return self.woken or self._called or self.served


class Waiting:
    """Holds the waiting requests of a process on one database, by group and by partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By group id: the group, and its waiters, the longest waiting first.
        self._groups: dict[int, tuple[PulledGroup, list[Waiter]]] = {}
        # By partition id: waiters with the offset that each of them waits for.
        self._readers: dict[int, list[tuple[int, Waiter]]] = {}
        self._names: dict[str, int] = {}
        # The topics that anybody waits for; the listener of wake-ups looks into it.
        self.topics: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._groups or self._readers)

    def groups(self) -> list[PulledGroup]:
        with self._lock:
            return [group for group, _waiters in self._groups.values()]

    @contextmanager
    def for_group(self, group: PulledGroup) -> Iterator[Waiter]:
        """Let a request of the group wait in the block."""
        waiter, pk = Waiter(), group.group.pk
        with self._lock:
            _group, waiters = self._groups.get(pk, (group, []))
            waiters.append(waiter)
            self._groups[pk] = group, waiters
            self._count(group.group.topic.name, 1)
        try:
            yield waiter
        finally:
            with self._lock:
                waiters.remove(waiter)
                if not waiters:
                    del self._groups[pk]
                self._count(group.group.topic.name, -1)
            if waiter.leaves_more:
                self.wake_group(pk)

    @contextmanager
    def for_offset(self, topic: str, partition_id: int, offset: int) -> Iterator[Waiter]:
        """Let a request wait in the block until the partition has a message at ``offset``."""
        waiter = Waiter()
        with self._lock:
            self._readers.setdefault(partition_id, []).append((offset, waiter))
            self._count(topic, 1)
        try:
            yield waiter
        finally:
            with self._lock:
                self._readers[partition_id].remove((offset, waiter))
                if not self._readers[partition_id]:
                    del self._readers[partition_id]
                self._count(topic, -1)

    def wake_group(self, group_id: int) -> bool:
        """Wake one request of the group; return whether there is one that sleeps.

        It wakes the next one when it has claimed something: one message wakes one client.
        """
        with self._lock:
            _group, waiters = self._groups.get(group_id, (None, ()))
            for waiter in waiters:
                if waiter.sleeps:
                    waiter.wake()
                    return True
        return False

    def wake_readers(self, ends: Iterable[tuple[int, int]]) -> bool:
        """Wake all who wait for an offset below the end of its partition: (id, end) each."""
        woken = False
        with self._lock:
            for partition_id, end in ends:
                for offset, waiter in self._readers.get(partition_id, ()):
                    if offset < end and waiter.sleeps:
                        waiter.wake()
                        woken = True
        return woken

    def _count(self, topic: str, number: int) -> None:
        self._names[topic] = self._names.get(topic, 0) + number
        if self._names[topic]:
            self.topics.add(topic)
        else:
            del self._names[topic]
            self.topics.discard(topic)


_waiting: dict[str, Waiting] = {}


def waiting(using: str) -> Waiting:
    """Return the requests that wait on ``using``: each database has ids of its own."""
    return _waiting.setdefault(using, Waiting())


# A fork has none of the requests of its parent.
os.register_at_fork(after_in_child=_waiting.clear)

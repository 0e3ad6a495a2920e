"""Holds requests until there is something for them: how long, how many, and what if one goes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from streams.conf import settings
from streams.http.pulling.waiting import Waiter

T = TypeVar("T")

# The most requests that a process holds, under ASGI and under WSGI, where each occupies a worker.
HOLDS, HOLDS_WSGI = 200, 2
# After how many seconds a client whose request is not held asks again.
RETRY_AFTER = 1

_lock = threading.Lock()
_held: Counter[int] = Counter()
# Work that goes on without its request. An event loop keeps only weak references.
_left: set[asyncio.Task[Any]] = set()


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _held.clear()
    _left.clear()


os.register_at_fork(after_in_child=_forget)


def longest(request: HttpRequest, asked: float) -> float:
    """Return for how many seconds the request may be held, of those that it asks for."""
    if isinstance(request, ASGIRequest):
        return asked
    return min(asked, settings().HTTP_HOLD_SECONDS_WSGI)


@contextmanager
def held(request: HttpRequest, token: int, most: int) -> Iterator[bool]:
    """Count the request as held in the block; give False if that is one too many.

    ``most``: how many requests of ``token`` a process holds.
    """
    limit = HOLDS if isinstance(request, ASGIRequest) else HOLDS_WSGI
    with _lock:
        admitted = _held.total() < limit and _held[token] < most
        _held[token] += admitted
    try:
        yield admitted
    finally:
        with _lock:
            _held[token] -= admitted
            if not _held[token]:
                del _held[token]


async def until_found(
    look: Callable[[], Awaitable[T | None]], waiter: Waiter | None, seconds: float
) -> T | None:
    """Return what ``look`` gives, when it gives something; None after ``seconds``."""
    ends = time.monotonic() + seconds
    while True:
        if waiter is not None:
            waiter.begin()
        found = await look()
        if waiter is None:
            return found
        if found is not None:
            waiter.found()
            return found
        waiter.found_nothing()
        left = ends - time.monotonic()
        if left <= 0 or not (waiter.woken or await waiter.wait(left)):
            return None


async def shielded(
    work: Awaitable[T], undo: Callable[[T], Awaitable[object]], gone: threading.Event
) -> T:
    """Wait for ``work``. If the request is gone meanwhile, let it end, and then ``undo`` it.

    ``gone`` tells work that has not begun yet that nobody waits for it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        gone.set()

        async def end() -> None:
            await undo(await task)

        left = asyncio.ensure_future(end())
        _left.add(left)
        left.add_done_callback(_ended)
        raise


def _ended(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # whoever would be told of it is gone

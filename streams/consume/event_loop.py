"""Runs async handlers: in one event loop for each worker thread, cancelled at their timeout.

The loop runs in a thread beside the worker's, which waits for it. What the handler passes to
``sync_to_async``, and so Django's ORM in async code, runs in the waiting worker thread: on the
connection of the worker and in the transaction of ``atomic=True``. So nothing of a call uses that
connection after the call has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async

T = TypeVar("T")

# How long, in seconds, a cancelled handler may clean up before the lease of its messages ends.
CLEAN_UP_SECONDS = 5.0


def with_event_loop(work: Callable[[], T]) -> T:
    """Run ``work`` in this thread, and all its handler calls in one event loop.

    At the end the loop is closed; tasks that the handlers have left in it are cancelled.
    """
    return async_to_sync(_in_thread_of_caller)(work)


async def _in_thread_of_caller(work: Callable[[], T]) -> T:
    return await sync_to_async(work)()


def run(coroutine: Coroutine[Any, Any, T], timeout: float, spent: float) -> T:
    """Run ``coroutine`` in the loop of this thread, or in a new one, and return its result.

    If it has not ended ``timeout`` seconds after the call began, which was ``spent`` seconds ago,
    it is cancelled, and TimeoutError is raised.
    """
    return async_to_sync(_limited)(coroutine, timeout, spent)


async def _limited(coroutine: Coroutine[Any, Any, T], timeout: float, spent: float) -> T:
    try:
        async with asyncio.timeout(timeout - spent) as limit:
            return await coroutine
    except TimeoutError as error:
        if limit.expired():
            text = f"the call was cancelled after {timeout:g} s, its consume timeout"
            raise TimeoutError(text) from error
        raise

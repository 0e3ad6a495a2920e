"""Runs what needs the database on a few threads, each with a connection of its own.

Under ASGI Django gives each request a thread, and so a connection, for as long as the request
lives: two hundred held requests would be two hundred connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from django.db import close_old_connections, connections, reset_queries
from django.http import HttpRequest

from streams.conf import database, settings, working_on
from streams.database.transactions import short_lock_waits
from streams.http.problems import Problem
from streams.produce import together
from streams.produce.identity import acting_for
from streams.sharding import alias_of, aliases
from streams.tracing import continued

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=HttpRequest)

# Requests that may wait for a thread, for each thread: each holds its body.
WAITING = 64
# In seconds: when who is refused may come again.
BUSY_SECONDS = 1

# A connection that was unused for so many seconds is tried before it is used. One that was lost in
# the meantime is replaced; what loses its connection later is repeated, or gets 503.
UNUSED_SECONDS = 1.0

# How long a request waits for a row that another transaction has locked; then it is a 503.
LOCK_SECONDS = 5

_pool: ThreadPoolExecutor | None = None
_probe: ThreadPoolExecutor | None = None
_making = threading.Lock()
_of_thread = threading.local()


def pool() -> ThreadPoolExecutor:
    """Return the threads of this process; at most ``EMS["HTTP_THREADS"]``."""
    global _pool
    with _making:
        if _pool is None:
            number = settings().HTTP_THREADS
            _pool = ThreadPoolExecutor(number, "ems-http", initializer=together.always)
        return _pool


def probe() -> ThreadPoolExecutor:
    """Return the one thread that answers probes: a process that is only busy is not ill."""
    global _probe
    with _making:
        if _probe is None:
            _probe = ThreadPoolExecutor(1, thread_name_prefix="ems-http-probe")
        return _probe


def _forget() -> None:
    """Forget the threads in a child process: a fork has only the one that called it."""
    global _pool, _probe, _making
    _pool, _probe, _making = None, None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def refuse_if_busy() -> None:
    """Raise Problem (503) if too many requests wait for a thread.

    Ask before a request begins. What it does later, such as giving back a claim, is not refused.
    """
    _refuse(pool(), settings().HTTP_THREADS)


async def on_a_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do ``work`` on a thread of the pool; return its result."""
    return await _on(pool(), lambda: work(*args, **kwargs))


async def for_a_probe(work: Callable[[], T]) -> T:
    """Do ``work`` on the thread for probes; return its result. Raises Problem (503)."""
    _refuse(probe(), 1)
    return await _on(probe(), work)


def _refuse(threads: ThreadPoolExecutor, size: int) -> None:
    # No thread is freed by a client that gives up: without a bound its repeats would add up.
    if threads._work_queue.qsize() >= WAITING * size:
        text = "The server is busy: too many requests wait."
        raise Problem(503, "busy", text, retry_after=BUSY_SECONDS)


async def _on(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    # As sync_to_async() does it, which takes longer than the rest of a short request.
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, run, _with_connection, work)


def short_waits(using: str | None = None) -> AbstractContextManager[None]:
    """Return the context in which a row that somebody else has locked is waited for LOCK_SECONDS.

    A client repeats a request that takes long, and each repeat would wait on a thread of its own.
    """
    return short_lock_waits(database(using), LOCK_SECONDS)


def _with_connection(work: Callable[[], T]) -> T:
    """Do ``work`` on this thread's connections, which stay open, as those of a consumer do.

    CONN_MAX_AGE is meant for threads that end with their request. With AUTOCOMMIT off nobody would
    commit what is done here.
    """
    ours = {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True, "AUTOCOMMIT": True}
    places: list[Any] = [connections[using] for using in aliases()]
    for connection in places:
        connection.settings_dict = {**connections.settings[connection.alias], **ours}
    close_old_connections()
    # Django would try it before each request, which is one more statement. Of several, nobody knows
    # which of them this thread has used.
    if len(places) == 1 and time.monotonic() < getattr(_of_thread, "used_until", 0.0):
        places[0].health_check_done = True
    reset_queries()
    try:
        return work()
    finally:
        close_old_connections()
        _of_thread.used_until = time.monotonic() + UNUSED_SECONDS


def on_pool(view: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], Awaitable[T]]:
    """Make an endpoint, which is a plain function, one that runs on a thread of the pool.

    What it sends has the caller as its producer, and continues the caller's trace. If it has a
    parameter ``topic``, it works on the database of that.
    """

    def work(request: R, *args: P.args, **kwargs: P.kwargs) -> T:
        topic = kwargs.get("topic")
        place = working_on(alias_of(topic)) if isinstance(topic, str) else nullcontext()
        with acting_for(_name_of(request)), continued(request.headers), place:
            return view(request, *args, **kwargs)

    @wraps(view)
    async def call(request: R, *args: P.args, **kwargs: P.kwargs) -> T:
        return await on_a_thread(work, request, *args, **kwargs)

    # The names in its annotations are those of its own module.
    made: Any = call
    made.__signature__ = inspect.signature(view, eval_str=True)
    return cast("Callable[Concatenate[R, P], Awaitable[T]]", made)


def _name_of(request: HttpRequest) -> str:
    """Return the producer of what this request sends: ``http:PREFIX@ADDRESS@THREAD``."""
    prefix = getattr(getattr(request, "auth", None), "prefix", "")
    address = request.META.get("REMOTE_ADDR", "")
    return f"http:{prefix}@{address}@{threading.current_thread().name}"

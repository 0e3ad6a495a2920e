"""Runs what needs the database on a few threads, each with a connection of its own.

Under ASGI Django gives each request a thread, and so a connection, for as long as the request
lives: two hundred held requests would be two hundred connections.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections, reset_queries
from django.http import HttpRequest

from streams.conf import database, settings
from streams.produce.identity import acting_for
from streams.tracing import continued

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=HttpRequest)

_pool: ThreadPoolExecutor | None = None
_making = threading.Lock()


def pool() -> ThreadPoolExecutor:
    """Return the threads of this process; at most ``EMS["HTTP_THREADS"]``."""
    global _pool
    with _making:
        if _pool is None:
            _pool = ThreadPoolExecutor(settings().HTTP_THREADS, thread_name_prefix="ems-http")
        return _pool


def _forget() -> None:
    """Forget the threads in a child process: a fork has only the one that called it."""
    global _pool, _making
    _pool, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


async def on_a_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do ``work`` on a thread of the pool; return its result."""
    run = sync_to_async(_with_connection, thread_sensitive=False, executor=pool())
    return await run(lambda: work(*args, **kwargs))


def _with_connection(work: Callable[[], T]) -> T:
    """Do ``work`` on this thread's connection, which stays open, as that of a consumer does.

    CONN_MAX_AGE is meant for threads that end with their request. With AUTOCOMMIT off nobody would
    commit what is done here.
    """
    using = database()
    ours = {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True, "AUTOCOMMIT": True}
    connections[using].settings_dict = {**connections.settings[using], **ours}
    close_old_connections()
    reset_queries()
    try:
        return work()
    finally:
        close_old_connections()


def on_pool(view: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], Awaitable[T]]:
    """Make an endpoint, which is a plain function, one that runs on a thread of the pool.

    What it sends has the caller as its producer, and continues the caller's trace.
    """

    def work(request: R, *args: P.args, **kwargs: P.kwargs) -> T:
        with acting_for(_name_of(request)), continued(request.headers):
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

"""Refuses, in async code, what would stop its event loop."""

from __future__ import annotations

import asyncio
import os

from streams.errors import SynchronousOnly


def refuse_async(name: str, instead: str) -> None:
    """Raise SynchronousOnly if an event loop runs in this thread.

    Django's DJANGO_ALLOW_ASYNC_UNSAFE, which notebooks set, allows it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise SynchronousOnly(
            f"{name}() would stop the event loop of this async code: await {instead} instead."
        )

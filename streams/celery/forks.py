"""Keeps the connections of this process's threads from being used, or ended, by its children.

A pool forks its children while other threads have connections. In a child these threads are gone,
and Python would let go of their connections, which says good-bye to the server on the socket of the
parent. So they are kept here, and a child turns its copies of the sockets away.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections

from streams.process.shared.connections import socket_of

# How long a fork waits until no thread is at work with a lock that the child would inherit.
PATIENCE_SECONDS = 1.0

_kept: list[Any] = []
_working: dict[int, threading.Lock] = {}
_held: list[threading.Lock] = []


def keep(using: str) -> None:
    """Keep the connection of this thread to ``using`` away from children that are forked."""
    _kept.append(connections[using])
    _working[threading.get_ident()] = threading.Lock()


def leave(using: str) -> None:
    """Close the connection of this thread, which ends."""
    connection = connections[using]
    connection.close()
    with suppress(ValueError):
        _kept.remove(connection)
    _working.pop(threading.get_ident(), None)


@contextmanager
def at_work() -> Iterator[None]:
    """Let no child be forked in the block, as far as it is short."""
    with _working.get(threading.get_ident()) or threading.Lock():
        yield


def _before() -> None:
    me = threading.get_ident()
    for ident, lock in list(_working.items()):
        if ident != me and lock.acquire(timeout=PATIENCE_SECONDS):
            _held.append(lock)


def _after() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    _held.clear()
    _working.clear()
    for connection in _kept:
        source = socket_of(connection.connection)
        if source is not None:  # a file of SQLite is left alone
            with suppress(Exception):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, source.fileno())
                os.close(nowhere)


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)

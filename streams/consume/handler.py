"""Checks a handler when it is decorated: one call with its one argument must work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from streams.errors import InvalidConsumer


def check(handler: Any, batch: int | None) -> None:
    """Raise InvalidConsumer if a call of ``handler`` with one argument could not run it."""
    if not callable(handler):
        raise InvalidConsumer(f"{handler!r} cannot be called.")
    name = name_of(handler)
    if isinstance(handler, type):
        raise InvalidConsumer(f"{name} is a class: a handler is a function.")
    if _is(handler, inspect.isgeneratorfunction) or _is(handler, inspect.isasyncgenfunction):
        raise InvalidConsumer(f"{name} is a generator (it has a “yield”): it would never run.")
    try:
        signature = inspect.signature(handler)
    except ValueError:  # some functions that are written in C do not tell
        return
    try:
        signature.bind(object())
    except TypeError as error:
        argument = "one message" if batch is None else "one list of messages"
        raise InvalidConsumer(
            f"{name}{signature} cannot be called with {argument} alone: {error}. Write a function"
            " of"
            " the module, with one argument; a method has “self” as well."
        ) from None


def is_async(handler: Any) -> bool:
    """Tell whether a call of ``handler`` makes a coroutine, which an event loop must run."""
    return _is(handler, inspect.iscoroutinefunction)


def name_of(handler: Any) -> str:
    """Return the module and the name of the function or class that ``handler`` comes from."""
    named: Any = handler
    while isinstance(named, partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"


def _is(handler: Any, kind: Callable[[Any], bool]) -> bool:
    # An instance of a class with __call__ is a handler, too.
    return kind(handler) or kind(getattr(handler, "__call__", None))  # noqa: B004

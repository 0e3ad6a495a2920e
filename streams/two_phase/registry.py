"""Defines @checkback, which registers a function that knows what became of prepared messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streams.api import Decision, PreparedMessage
from streams.consume.handler import check, is_async, name_of
from streams.consume.registry import autodiscover
from streams.errors import InvalidConsumer
from streams.rules.names import MAX_CHECKER, validated_name

Checkback = TypeVar("Checkback", bound=Callable[[PreparedMessage], Decision])

_registered: dict[str, Callable[[PreparedMessage], Any]] = {}


def checkback(name: str) -> Callable[[Checkback], Checkback]:
    """Register the function below under ``name``; returns it unchanged.

    Write it in a ``consumers.py``. It takes a :class:`PreparedMessage` and returns a
    :class:`Decision`. It must answer UNKNOWN unless it is certain: while the transaction of the
    work is open, its rows cannot be seen, and a ROLLBACK said then loses the message. It is certain
    of a rollback only if the work can no longer be committed; docs/guides/two-phase.md shows how.
    What it raises counts as UNKNOWN. It is asked again on a schedule, and at the end a person is.

    Raises InvalidConsumer for what is not a plain function of one argument, and for a second
    function of the same name; InvalidName.
    """
    validated_name(name, "checker", MAX_CHECKER)

    def register(function: Checkback) -> Checkback:
        check(function, None)
        if is_async(function):
            raise InvalidConsumer(f"{name} is async: a check-back is a plain function.")
        known = _registered.get(name)
        if known is not None and known is not function:
            raise InvalidConsumer(f"{name!r} is a check-back already: {name_of(known)}.")
        _registered[name] = function
        return function

    return register


def find(name: str) -> Callable[[PreparedMessage], Any] | None:
    """Return the registered function, or None."""
    return _registered.get(name)


def has_any() -> bool:
    return bool(_registered)


def is_registered(name: str) -> bool:
    """Tell whether this project has a check-back of this name; looks into each consumers.py."""
    if name not in _registered:
        autodiscover()
    return name in _registered

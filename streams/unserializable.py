"""Finds what in a body cannot be written as JSON, and says what to send instead."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import time
from typing import Any

from streams.rules.body import DEEPEST

Writable = Callable[[Any], bool]


def complaint(body: Any, writable: Writable) -> str | None:
    """Return what to change in ``body``, or None if the search finds no part that is at fault.

    ``writable`` tells whether a value, with all that is in it, can be written.
    """
    return next(_complaints(body, writable, "body", ()), None)


def _complaints(
    value: Any, writable: Writable, path: str, around: tuple[Any, ...]
) -> Iterator[str]:
    if any(value is one for one in around):
        yield f"{path} contains itself: leave that out."
    elif len(around) == DEEPEST and isinstance(value, dict | list | tuple):
        yield f"The body has more than {DEEPEST} levels, as in {path[:100]}…."
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str | int | float | None) or not writable({key: None}):
                yield f"{path} has the key {key!r}: keys must be text."
            name = json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)
            yield from _complaints(one, writable, f"{path}[{name}]", (*around, value))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _complaints(one, writable, f"{path}[{index}]", (*around, value))
    elif not writable(value):
        is_shown = isinstance(value, float | str)
        what = repr(value)[:100] if is_shown else f"of the type {type(value).__name__}"
        yield f"{path} is {what}: send {_instead(value)}."


def _instead(value: Any) -> str:
    # Imported here, since a message may be imported before Django's settings are there.
    from django.db.models import Model, QuerySet

    if isinstance(value, Model):
        return "its primary key and the values that the reader needs"
    if isinstance(value, QuerySet):
        return "a list of its values()"
    if isinstance(value, bytes | bytearray | memoryview):
        return "the bytes as the whole body, or text such as base64"
    if isinstance(value, float):
        return "None, or text"
    if isinstance(value, str):
        return "text that can be encoded as UTF-8"
    if isinstance(value, time):
        return "its isoformat()"
    if dataclasses.is_dataclass(value):
        return "a dict, as dataclasses.asdict() makes it"
    if isinstance(value, Iterable):
        return "a list"
    return "a dict, a list, text, a number, True, False or None"

"""Finds what in a body cannot be written as JSON, and says what to send instead."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import time
from typing import Any

from django.utils.translation import gettext as _

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
        yield _("%s contains itself: leave that out.") % path
    elif len(around) == DEEPEST and isinstance(value, dict | list | tuple):
        yield _("The body has more than %(most)d levels, as in %(path)s….") % {
            "most": DEEPEST,
            "path": path[:100],
        }
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str | int | float | None) or not writable({key: None}):
                yield _("%(path)s has the key %(key)r: keys must be text.") % {
                    "path": path,
                    "key": key,
                }
            name = json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)
            yield from _complaints(one, writable, f"{path}[{name}]", (*around, value))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _complaints(one, writable, f"{path}[{index}]", (*around, value))
    elif not writable(value):
        yield _("%(path)s is %(what)s: send %(instead)s.") % {
            "path": path,
            "what": repr(value)[:100]
            if isinstance(value, float | str)
            else _("of the type %s") % type(value).__name__,
            "instead": _instead(value),
        }


def _instead(value: Any) -> str:
    # Imported here, since a message may be imported before Django's settings are there.
    from django.db.models import Model, QuerySet

    if isinstance(value, Model):
        return _("its primary key and the values that the reader needs")
    if isinstance(value, QuerySet):
        return _("a list of its values()")
    if isinstance(value, bytes | bytearray | memoryview):
        return _("the bytes as the whole body, or text such as base64")
    if isinstance(value, enum.Enum):
        return _("its value")
    if isinstance(value, float):
        return _("None, or text")
    if isinstance(value, str):
        return _("text that can be encoded as UTF-8")
    if isinstance(value, time):
        return _("its isoformat()")
    if dataclasses.is_dataclass(value):
        return _("a dict, as dataclasses.asdict() makes it")
    if isinstance(value, Iterable):
        return _("a list")
    return _("a dict, a list, text, a number, True, False or None")

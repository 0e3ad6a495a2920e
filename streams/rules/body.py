"""Names the types of bodies, and checks a body that is bytes already."""

from __future__ import annotations

import json
from typing import Any

from streams.rules.errors import InvalidMessage, NotSerializable

JSON, TEXT, BYTES = BODY_TYPES = "json", "text", "bytes"

# The most levels of lists and dicts in a body: what other programs read has limits, too.
DEEPEST = 64

# Made once: `dict | list | tuple` in a loop makes a new object for each value of a body.
NESTING = (dict, list, tuple)


def is_too_deep(body: Any) -> bool:
    """Tell whether ``body``, which can be written as JSON, has more than DEEPEST levels."""
    level: list[Any] = [[body]]
    for _level in range(DEEPEST + 1):
        parts = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for part in parts for one in part if isinstance(one, NESTING)]
    return bool(level)


def check_encoded(raw: bytes, body_type: str) -> None:
    """Check that ``raw`` is what a send stores as ``body_type``.

    Raises NotSerializable, and InvalidMessage for another type.
    """
    if body_type not in BODY_TYPES:
        raise InvalidMessage(f"A body is json, text or bytes, not {body_type!r}.")
    if body_type == BYTES:
        return
    try:
        text = raw.decode()
        if body_type == JSON and is_too_deep(json.loads(text, parse_constant=_no_constant)):
            raise NotSerializable(f"The body has more than {DEEPEST} levels.")
    except (ValueError, RecursionError) as error:
        raise NotSerializable(f"The body is not {body_type}: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")

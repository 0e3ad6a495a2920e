"""Says where a list goes on: ``next`` of one page is ``after`` of the one that follows."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from streams.http.problems import Problem

# The types of what a cursor holds, as JSON has them.
Kind = type[int] | type[str]


def cursor(*values: int | str) -> str:
    """Return the cursor behind the row that has these values of the order."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(text: str | None, *kinds: Kind) -> Sequence[Any] | None:
    """Return the values of a cursor, None without one; raises Problem (422)."""
    if text is None:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        json.dumps(values, ensure_ascii=False).encode()  # half a surrogate pair is not text
    except (binascii.Error, ValueError, RecursionError):
        values = None
    if (
        not isinstance(values, list)
        or len(values) != len(kinds)
        or not all(type(value) is kind for value, kind in zip(values, kinds, strict=True))
        or any(isinstance(value, int) and abs(value) >= 2**63 for value in values)
    ):
        raise Problem(422, "invalid", "This is not the “next” of an answer.")
    return values

"""Checks the headers and the size of a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streams.rules.errors import InvalidMessage, MessageTooLarge


def headers_as_json(headers: Any) -> str:
    """Return headers as they are stored; raises InvalidMessage."""
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise InvalidMessage("headers must map strings to strings.")
    try:
        "".join((*headers, *headers.values())).encode()
    except UnicodeEncodeError as error:  # MySQL refuses it, and it could not be read back
        raise InvalidMessage(f"headers must be valid text: {error}") from error
    return json.dumps(dict(headers))


def check_size(body: bytes, headers: str | None, limit: int) -> None:
    """Check the size of body and headers in bytes; raises MessageTooLarge."""
    size = len(body) + len(headers or "")
    if size > limit:
        raise MessageTooLarge(f"Body and headers have {size} bytes; msgMaxSizeInBytes is {limit}.")

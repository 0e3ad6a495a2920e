"""Bodies: JSON, text or bytes in, the same value out. Never pickle."""

from __future__ import annotations

import codecs
import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext as _

from streams.errors import NotSerializable

JSON, TEXT, BYTES = "json", "text", "bytes"

PREVIEW_BYTES = 1000

# One encoder for all: building one a call costs more than encoding a small body. A circular body
# ends as a RecursionError.
_to_json = DjangoJSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode


def encode(value: Any) -> tuple[bytes, str]:
    """The bytes to store and the body type; raises NotSerializable."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), BYTES
    try:
        if isinstance(value, str):
            return value.encode(), TEXT
        return _to_json(value).encode(), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(_("The body cannot be written as JSON: %s") % error) from error


def decode(raw: bytes, body_type: str) -> Any:
    """The value that was sent."""
    if body_type == BYTES:
        return raw
    if body_type == TEXT:
        return raw.decode()
    return json.loads(raw)


def preview(raw: bytes | memoryview, body_type: str, size: int, limit: int = PREVIEW_BYTES) -> str:
    """The beginning of a body for people: text as it is, bytes as they would stand in Python.

    ``raw`` may itself be cut; ``size`` is that of the whole body.
    """
    start = bytes(raw)[:limit]
    whole = len(start) >= size
    if body_type == BYTES:
        return repr(start) + ("" if whole else "…")
    # A decoder that is not at the end leaves out a character that was cut in two.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(start, whole)
    return text if whole else text + "…"

"""Encodes and decodes bodies: JSON, text or bytes, and never pickle."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from streams.errors import InvalidBody, NotSerializable
from streams.rules.body import BYTES as BYTES
from streams.rules.body import DEEPEST, is_too_deep
from streams.rules.body import JSON as JSON
from streams.rules.body import TEXT as TEXT
from streams.typed.known import plain, type_of
from streams.typed.typed_body import TypedBody
from streams.unserializable import complaint

# As other systems name the types.
CONTENT_TYPES = {
    JSON: "application/json",
    TEXT: "text/plain",
    BYTES: "application/octet-stream",
}

PREVIEW_BYTES = 1000

# One encoder for all calls: to build one costs more than to encode a small body. A circular body
# raises RecursionError.
_to_json = DjangoJSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode


@dataclass(frozen=True, slots=True)
class AsJson:
    """A body that is JSON also where it is a string, which otherwise is text."""

    value: Any


def encode(value: Any) -> tuple[bytes, str]:
    """Return the bytes to store and the body type; raises NotSerializable.

    JSON has at most DEEPEST levels: deeper ones could be stored, and not be read by all.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), BYTES
    try:
        if isinstance(value, str):
            return value.encode(), TEXT
        if isinstance(value, AsJson):
            value = value.value
        if kind := type_of(value):
            value = kind.builtins(value)
        try:
            text = _to_json(value)
        except TypeError:
            value = plain(value)
            text = _to_json(value)
        # Counted first, which is quick: most bodies have few levels.
        if text.count("[") + text.count("{") > DEEPEST and is_too_deep(value):
            raise ValueError  # its place is told below
        raw = text.encode()
        if kind:
            _check(kind, raw)
        return raw, JSON
    except NotSerializable:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        text = complaint(value, _writable) or f"The body cannot be written as JSON: {error}"
        raise NotSerializable(text) from error


def _check(kind: TypedBody, raw: bytes) -> None:
    """Refuse what a consumer with this type would reject: most types do not check their values."""
    try:
        kind.decode(raw, JSON)
    except InvalidBody as error:
        raise NotSerializable(f"The body is no valid {kind.name}: {error}.") from error


def _writable(value: Any) -> bool:
    try:
        _to_json(value).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def decode(raw: bytes, body_type: str) -> Any:
    """Return the value that was sent."""
    if body_type == BYTES:
        return raw
    if body_type == TEXT:
        return raw.decode()
    return json.loads(raw)


def preview(raw: bytes | memoryview, body_type: str, size: int, limit: int = PREVIEW_BYTES) -> str:
    """Return at most ``limit`` bytes of a body for people: text as it is, bytes as a literal.

    ``raw`` may be cut already; ``size`` is that of the whole body in bytes.
    """
    start = bytes(raw)[:limit]
    whole = len(start) >= size
    if body_type == BYTES:
        return repr(start) + ("" if whole else "…")
    # Unless told that this is the end, the decoder leaves out a character that was cut in two.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(start, whole)
    return text if whole else text + "…"

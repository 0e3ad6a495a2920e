"""Checks the values of a message as ``send_many()`` does.

Executors have no Django, so these are the rules of streams/names.py, streams/body.py and
streams/produce/outgoing.py once more. tests/spark/test_sink_rules.py sends the same values both
ways and compares what is refused and what is stored.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sparkjobs.errors import BadRow
from sparkjobs.instants import EPOCH

MAX_KEY, MAX_TAG, MAX_DEDUP_KEY = 255, 64, 255
# The most levels of lists and dicts in a body.
DEEPEST = 64

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")


def checked_key(value: str | int | None, what: str = "key", longest: int = MAX_KEY) -> str | None:
    """Return a key as a text; raises BadRow."""
    if value is None:
        return None
    text = str(value)
    if not text or text != text.strip():
        raise BadRow(f"the {what} {text!r} is empty or has blanks around it")
    if len(text) > longest:
        raise BadRow(f"the {what} is longer than {longest} characters: {text[:40]!r}…")
    if not text.isprintable():
        raise BadRow(f"the {what} {text!r} has characters that cannot be printed")
    return text


def checked_tag(value: str | None) -> str:
    """Return a tag, "" for none; raises BadRow."""
    if not value:
        return ""
    tag = checked_key(value, "tag", MAX_TAG)
    assert tag is not None  # noqa: S101 - it was given
    if tag in (".", ".."):
        raise BadRow(f"the tag cannot be {tag!r}")
    if not _PLAIN.fullmatch(tag) and not all(map(_may_be_in_a_name, tag)):
        raise BadRow(f"a tag has letters, digits and . _ - : only: {tag!r} has others")
    if not unicodedata.is_normalized("NFC", tag):
        raise BadRow(f"the tag {tag!r} is not in the normal form NFC")
    return tag


def _may_be_in_a_name(character: str) -> bool:
    category = unicodedata.category(character)
    return character in "._-:" or category[0] in "LM" or category == "Nd"


def checked_body(value: str | bytes | None, body_type: str | None) -> tuple[bytes, str]:
    """Return the bytes to store and their type; raises BadRow.

    Without ``body_type`` a string is a text and a binary is bytes, as in a send. NULL is the null
    of JSON.
    """
    if value is None:
        if body_type not in (None, "json"):
            raise BadRow(f"the body is NULL, which is no {body_type}")
        return b"null", "json"
    raw = value.encode() if isinstance(value, str) else value
    if body_type is None:
        return raw, "text" if isinstance(value, str) else "bytes"
    if body_type == "json":
        _check_json(raw)
    elif body_type == "text":
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise BadRow(f"the body is no UTF-8: {error}") from error
    elif body_type != "bytes":
        raise BadRow(f"body_type must be json, text or bytes, not {body_type!r}")
    return raw, body_type


def _check_json(raw: bytes) -> None:
    try:
        value = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"the body is no JSON: {error}") from error
    level: list[Any] = [[value]]
    for _level in range(DEEPEST + 1):
        parts = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for part in parts for one in part if isinstance(one, dict | list)]
    if level:
        raise BadRow(f"the body has more than {DEEPEST} levels")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def checked_headers(value: str | Sequence[tuple[str, str | None]] | None) -> str | None:
    """Return headers as JSON; they are given as a map, or as JSON themselves. Raises BadRow."""
    if value is None:
        return None
    try:
        headers: Any = json.loads(value) if isinstance(value, str) else dict(value)
    except ValueError as error:
        raise BadRow(f"the headers are no JSON: {error}") from error
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise BadRow("headers must map strings to strings")
    try:
        "".join((*headers, *headers.values())).encode()
    except UnicodeEncodeError as error:
        raise BadRow(f"headers must be valid text: {error}") from error
    return json.dumps(headers)


def checked_due(microseconds: int | None) -> str | None:
    """Return the time of a message as it is stored, None for one that is past long ago.

    Raises BadRow.
    """
    if microseconds is None or microseconds <= 0:
        return None
    try:
        instant: datetime = EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise BadRow("deliver_at is out of range") from error
    return str(instant.astimezone(UTC).replace(tzinfo=None))


def hash_of(key: str) -> bytes:
    """Return the hash of a dedup key, as streams/produce/dedup.py has it."""
    return hashlib.sha256(key.encode()).digest()


def check_size(body: bytes, headers: str | None, limit: int) -> None:
    """Check the size of a message; raises BadRow."""
    size = len(body) + len(headers or "")
    if size > limit:
        raise BadRow(f"body and headers have {size} bytes; msgMaxSizeInBytes is {limit}")

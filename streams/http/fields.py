"""Defines what requests and answers have in common: instants, bodies, ids, pages."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from django.http import HttpResponse
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import WithJsonSchema

from streams.body import BYTES, JSON, TEXT, AsJson
from streams.errors import InvalidMessage
from streams.nouns.noun import BodyTypeName, Noun, NounEncoder, written

T = TypeVar("T")
# One encoder for all calls: to build one costs more than to encode a message.
_to_json = NounEncoder().encode

# The highest number that a column of ids or offsets can have.
MOST = 2**63 - 1
# The most rows of one page of a list.
PAGE = 1000

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def _instant(given: Any) -> Any:
    if isinstance(given, datetime):  # of an answer
        return given
    if not isinstance(given, str) or not INSTANT.fullmatch(given):
        raise ValueError("an instant with its zone, such as 2026-01-31T12:00:00Z")
    return datetime.fromisoformat(given)


Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    PlainSerializer(written, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Id = Annotated[int, Field(ge=0, le=MOST)]
Limit = Annotated[int, Field(ge=1, le=PAGE)]


class Request(BaseModel):
    """What a client sends: nothing unknown, and nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and info.field_name != "body":  # sending tells what a body may be
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("text that is not valid Unicode") from None
        return value


class NoFields(Request):
    """An empty object."""


class Answer(BaseModel):
    """What a client gets. It is made by EMS, so nothing is checked."""

    model_config = ConfigDict(strict=False)


class Page(Answer, Generic[T]):
    """A page of a list; ``next`` is the ``after`` of the one that follows, null at the end."""

    items: list[T]
    next: str | None = None


class PageOfAll(Page[T]):
    """A page of a list of all databases, without the rows of those that are ``away``."""

    away: list[str] = []


def body_in(value: Any, body_type: BodyTypeName | None) -> Any:
    """Return what to send for ``body`` and ``body_type`` of a request.

    Without a type a string is text, as in Python. Raises InvalidMessage.
    """
    if body_type is None:
        return value
    if body_type == JSON:
        return AsJson(value)
    if not isinstance(value, str):
        raise InvalidMessage(f"A body of the type {body_type} must be a string.")
    if body_type == TEXT:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage("A body of the type bytes must be Base64.") from error


def body_out(raw: bytes, body_type: str) -> str:
    """Return the JSON text of the ``body`` of an answer: bytes in Base64.

    Stored JSON is passed through: to read it and to write it again has limits, and costs more.
    """
    if body_type == JSON:
        return raw.decode()
    return json.dumps(base64.b64encode(raw).decode() if body_type == BYTES else raw.decode())


def joined(values: Mapping[str, Any], **texts: str) -> str:
    """Return the JSON text of an object with ``values``; the last members are JSON already."""
    last = ", ".join(f'"{name}": {text}' for name, text in texts.items())
    return f"{_to_json(values)[:-1]}, {last}}}"


def with_body(shown: Noun, text: str) -> HttpResponse:
    """Return ``shown`` as an answer, with ``text`` as its ``body``."""
    values = {name: value for name, value in vars(shown).items() if name != "body"}
    content = joined(values, body=text)
    return HttpResponse(content, content_type="application/json")

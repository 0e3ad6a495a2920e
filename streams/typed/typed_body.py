"""Defines TypedBody: a type of bodies, by the library that reads, writes and describes it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from streams.errors import InvalidBody, NotSerializable
from streams.rules.body import JSON


class TypedBody(ABC):
    """A type whose values are bodies; ``kind`` is the class."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property
    def name(self) -> str:
        """What the schema and the errors call it."""
        return self.kind.__name__

    def decode(self, raw: bytes, body_type: str) -> Any:
        """Return the value that a body stands for.

        Raises InvalidBody, and whatever the validators of the type raise.
        """
        if body_type != JSON:
            raise InvalidBody(f"$: expected JSON, got {body_type}")
        return self._decode(raw)

    @abstractmethod
    def _decode(self, raw: bytes) -> Any:
        """Return the value of the JSON text; raises InvalidBody."""

    def builtins(self, value: Any) -> Any:
        """Return what a JSON encoder can write of ``value``; raises NotSerializable."""
        try:
            return self._builtins(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotSerializable(f"This {self.name} cannot be written: {error}") from error

    @abstractmethod
    def _builtins(self, value: Any) -> Any: ...

    @abstractmethod
    def schema(self, at: str = "#") -> dict[str, Any]:
        """Return the JSON Schema of the bodies; ``at`` is where it stands in its document."""


def fault(path: str, text: str) -> str:
    """Return what is wrong with the part of a body at ``path``, such as ``$.lines[2]``."""
    return f"{path}: {text[:1].lower()}{text[1:]}"


def defined(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a schema that only refers to one of its definitions as this definition itself.

    ``place`` is where the definitions are.
    """
    ref = schema.get("$ref")
    if ref is None:
        return schema
    parts = dict(schema["$defs"])
    own = parts[ref.removeprefix(place)]
    if json.dumps(ref) not in json.dumps(parts):  # unless it is a part of itself
        del parts[ref.removeprefix(place)]
    return {**own, "$defs": parts} if parts else dict(own)

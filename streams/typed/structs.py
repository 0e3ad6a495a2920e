"""Reads, writes and describes Structs, dataclasses and TypedDicts by msgspec."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from streams.errors import InvalidBody
from streams.typed.typed_body import TypedBody, defined, fault

# How msgspec ends an error: with the place in the body, if that is not the whole of it.
PLACE = re.compile(r" - at (?P<key>`key` in )?`(?P<path>\$[^`]*)`$")


class StructBody(TypedBody):
    """A type that msgspec knows."""

    def __init__(self, kind: type) -> None:
        super().__init__(kind)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self.schema()  # it finds types that msgspec would refuse with each body

    def _decode(self, raw: bytes) -> Any:
        try:
            return self._decoder.decode(raw)
        except msgspec.DecodeError as error:
            text = str(error)
            place = PLACE.search(text)
            path = place["path"] + ("[a key]" if place["key"] else "") if place else "$"
            raise InvalidBody(fault(path, PLACE.sub("", text).replace("`", ""))) from None

    def _builtins(self, value: Any) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    def schema(self, at: str = "#") -> dict[str, Any]:
        place = f"{at}/$defs/"
        (root,), parts = msgspec.json.schema_components([self.kind], ref_template=place + "{name}")
        return defined({**root, "$defs": parts}, place)

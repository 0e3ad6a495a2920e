"""Reads, writes and describes models, dataclasses and TypedDicts by pydantic."""

from __future__ import annotations

from typing import Any

import pydantic

from streams.errors import InvalidBody, InvalidConsumer
from streams.typed.typed_body import TypedBody, defined, fault

# An error names so many faults; a body may have thousands.
MOST_FAULTS = 5


class ModelBody(TypedBody):
    """A type that pydantic knows.

    A class of pydantic's says by its own settings what it converts and what else it takes. Any
    other class takes what msgspec would take: text is no number.
    """

    def __init__(self, kind: type) -> None:
        super().__init__(kind)
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
        self._adapter.rebuild(raise_errors=True)  # pydantic would do it with the first body
        self._strict = None if is_of_pydantic(kind) else True

    @property
    def name(self) -> str:
        title = getattr(self.kind, "model_config", {}).get("title")
        return str(title or super().name)

    def _decode(self, raw: bytes) -> Any:
        try:
            return self._adapter.validate_json(raw, strict=self._strict)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            faults = [fault(_path(one["loc"]), one["msg"]) for one in found[:MOST_FAULTS]]
            if more := len(found) - MOST_FAULTS:
                faults += [f"{more} more"] if more > 0 else []
            raise InvalidBody("; ".join(faults)) from None

    def _builtins(self, value: Any) -> Any:
        # What pydantic computes is left out: a model that refuses unknown fields could not read it.
        return self._adapter.dump_python(
            value, mode="json", by_alias=True, round_trip=True, warnings="error"
        )

    def schema(self, at: str = "#") -> dict[str, Any]:
        place = f"{at}/$defs/"
        try:
            return defined(self._adapter.json_schema(ref_template=place + "{model}"), place)
        except pydantic.errors.PydanticInvalidForJsonSchema as error:
            raise InvalidConsumer(f"{self.name} has no JSON Schema: {error.message}") from None


def is_of_pydantic(kind: type) -> bool:
    """Tell whether the class is a model or a dataclass of pydantic's own."""
    return hasattr(kind, "__pydantic_validator__")


def _path(place: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "$" + "".join(parts).replace(".[key]", "[a key]")

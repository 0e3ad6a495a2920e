"""Makes the JSON Schema of the bodies of a topic, of what its groups say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.observe.contract.types import names_of
from streams.typed.typed_body import TypedBody

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(types: Mapping[str, TypedBody]) -> dict[str, Any]:
    """Return the JSON Schema of bodies that each group can read; ``types`` is by group."""
    if not differ(types):
        return {"$schema": DIALECT, **next(iter(types.values())).schema()}
    names = names_of(types.values())
    parts = {names[one.kind]: one.schema(f"#/$defs/{names[one.kind]}") for one in types.values()}
    return {
        "$schema": DIALECT,
        "$comment": said(types),
        "allOf": [{"$ref": f"#/$defs/{name}"} for name in parts],
        "$defs": parts,
    }


def differ(types: Mapping[str, TypedBody]) -> bool:
    """Tell whether the groups say types with different schemas."""
    first, *others = (one.schema() for one in types.values())
    return any(other != first for other in others)


def said(types: Mapping[str, TypedBody]) -> str:
    """Say which type each group expects."""
    names = names_of(types.values())
    text = ", ".join(f"{group}: {names[one.kind]}" for group, one in sorted(types.items()))
    return f"The groups expect different types ({text})."

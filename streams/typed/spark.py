"""Writes a JSON Schema as a type of Spark, for from_json()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
SCALARS = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
# Whatever it is: from_json() gives its JSON as text.
ANY = "STRING"

Schema = Mapping[str, Any]


def spark_type(schema: Schema) -> str:
    """Return the type of Spark for values of the schema, such as ``STRUCT<id: BIGINT>``.

    What Spark has no type for is a STRING: a part that is in itself, or that has several types.
    """
    return _type(schema, schema, ())


def _type(part: Any, root: Schema, around: tuple[str, ...]) -> str:
    if not isinstance(part, Mapping):
        return ANY
    if ref := part.get("$ref"):
        return ANY if ref in around else _type(_at(ref, root), root, (*around, ref))
    if choices := part.get("anyOf") or part.get("oneOf") or part.get("allOf"):
        types = {_type(one, root, around) for one in choices if one.get("type") != "null"}
        return types.pop() if len(types) == 1 else ANY
    if "enum" in part or "const" in part:
        values = part.get("enum", [part.get("const")])
        return SCALARS["integer"] if all(type(one) is int for one in values) else ANY
    match part.get("type"):
        case "object":
            return _object(part, root, around)
        case "array":
            return f"ARRAY<{_type(part.get('items'), root, around)}>"
        case "string":
            return FORMATS.get(part.get("format", ""), ANY)
        case kind:
            return SCALARS.get(str(kind), ANY)


def _object(part: Schema, root: Schema, around: tuple[str, ...]) -> str:
    if properties := part.get("properties"):
        types = {name: _type(one, root, around) for name, one in properties.items()}
        return f"STRUCT<{', '.join(f'{_quoted(name)}: {one}' for name, one in types.items())}>"
    if isinstance(values := part.get("additionalProperties"), Mapping):
        return f"MAP<STRING, {_type(values, root, around)}>"
    return ANY


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _at(ref: str, root: Schema) -> Any:
    found: Any = root
    for step in ref.removeprefix("#/").split("/"):
        found = found[step]
    return found

"""Says in the OpenAPI file what views do not: names, errors, and which fields are always there.

Clients are generated from it. What is checked, and how, is said in streams/rules/names.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.http.problems import CONTENT_TYPE, codes
from streams.http.pulling.clients import MAX_CLIENT
from streams.rules.names import MAX_BIZ, MAX_CHECKER, MAX_KEY, MAX_NAME, MAX_TAG

# In characters, by the name of a parameter or of a field of a request.
LONGEST = {
    **dict.fromkeys(("topic", "group", "name"), MAX_NAME),
    "biz": MAX_BIZ,
    "biz_key": MAX_KEY,
    "checker": MAX_CHECKER,
    "client": MAX_CLIENT,
    "key": MAX_KEY,
    "tag": MAX_TAG,
    **dict.fromkeys(("dedup_key", "Idempotency-Key"), MAX_KEY),
}
# What is given to something new: no sign of ASCII but these. Of other characters EMS says more.
NEW = {"name", "biz", "client", "tag"}
NEW_NAME = r"^[^\x00-,/;-@\[-^`{-\x7f]*$"

# What each request with a token may be answered with, what one with a body, and what others.
ALWAYS, WITH_BODY, GONE = (401, 403, 404, 409, 422, 429, 500, 503), (400, 413), (410,)
# Members of the problems of a status, beside the usual ones.
MORE: dict[int, dict[str, Any]] = {
    409: {
        "count": {"type": "integer", "description": "Of count_mismatch: how many letters wait."},
        "redrive": {"type": "integer", "description": "Of redrive_running: the number of it."},
    },
    410: {"first": {"type": "integer", "description": "Of purged: the first offset that is kept."}},
    422: {
        "errors": {
            "type": "array",
            "description": "Of invalid: where the request is wrong, and why.",
            "items": {
                "type": "object",
                "properties": {"at": {"type": "string"}, "text": {"type": "string"}},
                "required": ["at", "text"],
            },
        },
    },
}


def complete(made: dict[str, Any]) -> None:
    """Add to an OpenAPI file, in place, what the views do not say."""
    schemas = made["components"]["schemas"]
    for schema in schemas.values():
        fields = schema.get("properties", {})
        for field in fields.values():
            _only_value(field)
        if schema.get("additionalProperties") is False:  # of a request
            for name, field in fields.items():
                _name(field, name, is_new=name in NEW)
                _optional(field)
        else:
            schema["required"] = list(fields)
            for field in fields.values():
                field.pop("default", None)
    for path, methods in made["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                _name(parameter["schema"], parameter["name"], is_new=False)
                _optional(parameter["schema"])
            answers = {str(status): _answer(status) for status in _of(path, operation)}
            operation["responses"] = {
                **answers,
                **operation["responses"],
                "default": _answer(),
            }
    everything = codes()
    schemas["Problem"] = _problem(sorted({code for some in everything.values() for code in some}))
    for status in (*ALWAYS, *WITH_BODY, *GONE):
        schemas[f"Problem{status}"] = _problem(everything[status], status)
    made["components"]["responses"] = {
        name: {
            "description": "A problem (RFC 9457)",
            "content": {CONTENT_TYPE: {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
        for name in schemas
        if name.startswith("Problem")
    }


def _name(schema: dict[str, Any], name: str, *, is_new: bool) -> None:
    """Say how long a name may be, and what a new one may have."""
    for one in _texts(schema):
        if name in LONGEST and "enum" not in one:
            one.setdefault("maxLength", LONGEST[name])
            if name != "tag":
                one.setdefault("minLength", 1)
            if is_new:
                one.setdefault("pattern", NEW_NAME)


def _texts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in (schema, *schema.get("anyOf", ())):
        if one.get("type") == "string":
            yield one


def _only_value(schema: dict[str, Any]) -> None:
    """Say a text that is the only value as an enum.

    Clients that are generated of a const refuse what has another type of the union.
    """
    for one in _texts(schema):
        if "const" in one:
            one["enum"] = [one.pop("const")]


def _optional(schema: dict[str, Any]) -> None:
    """Say a default in words: to generators a field with a default is one that is always there."""
    value = schema.pop("default", None)
    if value not in (None, "", False):
        said = schema.get("description", "")
        schema["description"] = f"{said} By default {value}.".strip()


def _of(path: str, operation: dict[str, Any]) -> Iterator[int]:
    if operation["x-right"] is None:
        return
    yield from ALWAYS
    if "requestBody" in operation:
        yield from WITH_BODY
    if "/deliveries/" in path or path.endswith("/partitions/{number}/messages"):
        yield from GONE


def _problem(of: list[str], status: int | None = None) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"} if status is None else {"const": status},
        "code": {"type": "string", "enum": of},
        "detail": {"type": "string"},
    }
    statuses = MORE if status is None else [status]
    more = {name: one for each in statuses for name, one in MORE.get(each, {}).items()}
    return {"type": "object", "properties": {**usual, **more}, "required": list(usual)}


def _answer(status: int | str = "") -> dict[str, Any]:
    return {"$ref": f"#/components/responses/Problem{status}"}

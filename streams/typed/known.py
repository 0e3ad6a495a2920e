"""Finds the library that reads and writes a type of bodies, and the type of a value."""

from __future__ import annotations

import dataclasses
import sys
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any

from streams.errors import InvalidConsumer, NotSerializable, describe
from streams.typed.typed_body import TypedBody

# Of dataclasses and TypedDicts, which no library owns, in this order: msgspec takes a third of the
# time of pydantic.
LIBRARIES = {"msgspec": "streams.typed.structs", "pydantic": "streams.typed.pydantic_models"}
# What most bodies are: their types need not be looked up.
PLAIN = frozenset({dict, list, tuple, int, float, bool, type(None)})
TYPES = "a dataclass, a TypedDict, a Struct of msgspec or a model of pydantic"


def typed_body(kind: Any) -> TypedBody:
    """Return the TypedBody of a class; raises InvalidConsumer."""
    libraries = _libraries(kind)
    if not libraries:
        raise InvalidConsumer(f"body must be {TYPES}, not {kind!r}.")
    for library in libraries:
        try:
            import_module(library)
        except ImportError:
            continue
        return _by(library, kind)
    raise InvalidConsumer(
        f"{kind.__qualname__} needs a library that checks bodies: install {' or '.join(libraries)}."
    )


def type_of(value: Any) -> TypedBody | None:
    """Return the TypedBody of a value; None if it is to be written as it is.

    Raises NotSerializable if the library cannot write such values.
    """
    kind = type(value)
    return None if kind in PLAIN else _type_of(kind)  # type: ignore[arg-type] # all are hashable


def plain(value: Any) -> Any:
    """Return ``value`` with each value of a type inside of it, and each Enum, as JSON has it.

    Raises NotSerializable and RecursionError.
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return plain(value.value)
    kind = type_of(value)
    return value if kind is None else kind.builtins(value)


@lru_cache(maxsize=1000)
def _type_of(kind: type) -> TypedBody | None:
    if not _libraries(kind) or issubclass(kind, dict):
        return None
    try:
        return typed_body(kind)
    except InvalidConsumer as error:
        if isinstance(error.__cause__, Exception):
            raise NotSerializable(str(error)) from error
        return None  # no library is there


def _by(library: str, kind: type) -> TypedBody:
    home = import_module(LIBRARIES[library])
    of_library = home.StructBody if library == "msgspec" else home.ModelBody
    try:
        found: TypedBody = of_library(kind)
    except Exception as error:  # it evaluates annotations, which may be anything
        raise InvalidConsumer(
            f"{library} cannot read bodies of the type {kind.__qualname__}: {describe(error)}"
        ) from error
    return found


def _libraries(kind: Any) -> tuple[str, ...]:
    """Return the libraries that can read the type, the preferred one first; none if none can."""
    if not isinstance(kind, type):
        return ()
    # A library that is not imported has no classes.
    msgspec: Any = sys.modules.get("msgspec")
    if msgspec is not None and issubclass(kind, msgspec.Struct):
        return ("msgspec",)
    if hasattr(kind, "__pydantic_validator__"):
        return ("pydantic",)
    is_typed_dict = issubclass(kind, dict) and hasattr(kind, "__total__")
    return tuple(LIBRARIES) if dataclasses.is_dataclass(kind) or is_typed_dict else ()

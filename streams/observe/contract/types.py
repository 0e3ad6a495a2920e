"""Finds the types of bodies that the consumers of the project say, and gives them names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from streams.consume.registry import autodiscover, registrations
from streams.typed.typed_body import TypedBody


def types_of(topic: str) -> dict[str, TypedBody]:
    """Return the type of each group of the topic that says one, by the name of the group."""
    autodiscover()
    found = registrations([topic])
    return {one.group: one.body for one in found if one.body is not None}


def names_of(types: Iterable[TypedBody]) -> dict[type, str]:
    """Return a name for each class: its own, with its module where several have the same.

    A name has the characters that it may have in AsyncAPI.
    """
    by_class = {one.kind: one for one in types}
    counts = Counter(one.name for one in by_class.values())
    return {
        kind: re.sub(r"[^A-Za-z0-9._-]", "_", _full(one) if counts[one.name] > 1 else one.name)
        for kind, one in by_class.items()
    }


def _full(one: TypedBody) -> str:
    return f"{one.kind.__module__}.{one.kind.__qualname__}"

"""Counts or reads the rows of many querysets up to a limit, in one statement for hundreds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from django.db.models import QuerySet

from streams.database.sql.dialect import fetch

# In querysets: SQLite takes 500 parts of a UNION.
CHUNK = 300

_Key = TypeVar("_Key")


def count_each(rows: Mapping[_Key, QuerySet[Any]], at_most: int, using: str) -> dict[_Key, int]:
    """Return how many rows each has, ``at_most`` if there are as many or more.

    Each count reads at most that many entries of its index. Of a queryset that has a limit of its
    own it is not the count, but its column ``value``, a whole number: nothing if there is no row.
    """
    what = {key: "MAX(`value`)" if one.query.is_sliced else "COUNT(*)" for key, one in rows.items()}
    limited = {
        key: one if one.query.is_sliced else one.order_by().values("pk")[:at_most]
        for key, one in rows.items()
    }
    found = _read(limited, what, using)
    return {key: int(count) for key, count in found if count is not None}


def read_each(rows: Mapping[_Key, QuerySet[Any]], using: str) -> dict[_Key, list[Any]]:
    """Return the rows of each, as the driver gives their columns; each must have a limit."""
    found: dict[_Key, list[Any]] = {}
    for key, *values in _read(rows, dict.fromkeys(rows, "`part`.*"), using):
        found.setdefault(key, []).append(values)
    return found


def _read(
    rows: Mapping[_Key, QuerySet[Any]], what: Mapping[_Key, str], using: str
) -> Iterator[Any]:
    waiting = iter(rows.items())
    while chunk := dict(islice(waiting, CHUNK)):
        keys = list(chunk)
        statement, parameters = _union(((what[key], one) for key, one in chunk.items()), using)
        for number, *values in fetch(using, statement, parameters):
            yield keys[int(number)], *values


def _union(parts: Iterable[tuple[str, QuerySet[Any]]], using: str) -> tuple[str, list[Any]]:
    texts: list[str] = []
    parameters: list[Any] = []
    for number, (what, one) in enumerate(parts):
        text, values = one.query.get_compiler(using).as_sql()
        texts.append(f"SELECT {number}, {what} FROM ({text}) AS `part`")  # noqa: S608 - a number
        parameters += values
    return " UNION ALL ".join(texts), parameters

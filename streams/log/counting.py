"""Counts the rows of many querysets up to a limit, in one statement for hundreds of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

from django.db.models import QuerySet

from streams.database.sql.dialect import fetch

# In querysets: SQLite takes 500 parts of a UNION.
CHUNK = 300

_Key = TypeVar("_Key")


def count_each(rows: Mapping[_Key, QuerySet[Any]], at_most: int, using: str) -> dict[_Key, int]:
    """Return how many rows each has, ``at_most`` if there are as many or more.

    Each count reads at most that many entries of its index.
    """
    found: dict[_Key, int] = {}
    waiting = iter(rows.items())
    while chunk := dict(islice(waiting, CHUNK)):
        keys = list(chunk)
        statement, parameters = _union(chunk.values(), at_most, using)
        for number, count in fetch(using, statement, parameters):
            found[keys[int(number)]] = int(count)
    return found


def _union(rows: Iterable[QuerySet[Any]], at_most: int, using: str) -> tuple[str, list[Any]]:
    parts: list[str] = []
    parameters: list[Any] = []
    for number, one in enumerate(rows):
        limited = one.order_by().values("pk")[:at_most].query
        text, values = limited.get_compiler(using).as_sql()
        parts.append(f"SELECT {number}, COUNT(*) FROM ({text}) AS counted")  # noqa: S608 - a number
        parameters += values
    return " UNION ALL ".join(parts), parameters

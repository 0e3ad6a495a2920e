"""Finds the database of what a request names by an id, and lists what is on all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from ninja import Query

from streams.http.answering import Answering
from streams.http.cursors import Kind, cursor, position
from streams.http.fields import PageOfAll
from streams.http.problems import Problem
from streams.sharding import aliases

T = TypeVar("T")

ABOUT = "Of the id, as answers have it. Needed where topics are on several databases."
Database = Annotated[str | None, Query(alias="database", description=ABOUT)]
ABOUT_KEY = "Of the message, as answers have it. Without it, all databases are asked for the key."
OfKey = Annotated[str | None, Query(alias="database", description=ABOUT_KEY)]

# Reads at most so many items behind a place; the place is None at the beginning. It returns them,
# and the place behind what it has read; None if nothing is left.
Read = Callable[[str, Any, int], tuple[list[T], Any]]


def alias_of_id(given: str | None) -> str:
    """Return the alias that a request names beside an id; raises Problem.

    Each database counts ids by itself: without its name, another row may have the id.
    """
    known = aliases()
    if given is None and len(known) == 1:
        return known[0]
    named = alias_of_key(given)
    if named is None:
        text = "Topics are on several databases: say that of the id, by “database”."
        raise Problem(422, "database_needed", text)
    return named


def alias_of_key(given: str | None) -> str | None:
    """Return the alias that a request names beside a key, if it does; raises Problem."""
    if given is not None and given not in aliases():
        raise Problem(422, "invalid", f"Topics are on no database {given!r}.")
    return given


def page_of_all(after: str | None, kind: Kind, limit: int, read: Read[T]) -> PageOfAll[T]:
    """Return a page of what ``read`` finds on each database, one after the other.

    ``kind`` is the type of the place where a page goes on; it is above kind(). A database that is
    away is left out, and named.
    """
    places = list(aliases())
    start = position(after, str, kind)
    behind = None
    if start is not None:
        if start[0] not in places:
            raise Problem(422, "invalid", "This is not the “next” of an answer.")
        places, behind = places[places.index(start[0]) :], start[1]
    items: list[T] = []
    databases = Answering()
    for number, alias in enumerate(places):
        found, then = databases.ask(alias, partial(read, alias, behind, limit - len(items))) or (
            [],
            None,
        )
        items += found
        if then is not None:
            return PageOfAll(items=items, next=cursor(alias, then), away=databases.away)
        behind = None
        if len(items) == limit and number + 1 < len(places):
            following = cursor(places[number + 1], kind())
            return PageOfAll(items=items, next=following, away=databases.away)
    return PageOfAll(items=items, away=databases.away)

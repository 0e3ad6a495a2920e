"""Finds out which databases answer, and waits for none that is away or hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import Error, connections

from streams.database.each import ask_each
from streams.database.retrying import transient
from streams.sharding import aliases, is_sharded

T = TypeVar("T")


class Answering:
    """The databases that a request asks; those that have not answered are in ``away``."""

    def __init__(self) -> None:
        self.away: list[str] = []

    def ask(self, alias: str, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns; None if the database is away.

        Raises the Error if there is no other database, or no other one has answered.
        """
        if not is_sharded():
            return work()
        try:
            for reply in ask_each("connection", [alias], _connect):
                reply.whole()
            return work()
        except Error as error:
            if not transient(error):
                raise
            self.away.append(alias)
            if len(self.away) == len(aliases()):
                raise
            return None


def _connect(alias: str) -> Iterable[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")
    return ()

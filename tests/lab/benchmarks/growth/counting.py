"""Counts what a unit of work costs the server: index entries and rows read, and statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection

LOOK = "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler\\_read%%'"
LOOK += " OR Variable_name = 'Questions'"


@dataclass(frozen=True)
class Count:
    """Counts of this process' session (``Handler_read_*`` and ``Questions``)."""

    reads: int
    statements: int

    def __sub__(self, other: Count) -> Count:
        return Count(self.reads - other.reads, self.statements - other.statements)


def count(work: Callable[[], object]) -> Count:
    """Return what ``work`` costs on the connection of this thread."""
    _now()
    before = _now()
    look = _now() - before  # what it costs to look
    before = _now()
    work()
    return _now() - before - look


def _now() -> Count:
    with connection.cursor() as cursor:
        cursor.execute(LOOK, ())
        values = {name: int(value) for name, value in cursor.fetchall()}
    statements = values.pop("Questions")
    return Count(sum(values.values()), statements)

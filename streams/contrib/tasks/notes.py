"""Writes what the threads of a process note of their tasks, several notes in one transaction.

Each thread goes on when its note is committed. A commit takes longer than all else of a note, so
what several threads note at the same time shares one.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from django.db import connections

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.produce import together


class Written(NamedTuple):
    """How many rows a note has matched, and the id of the row that it has inserted."""

    rows: int
    pk: int


class Note(NamedTuple):
    """One statement about one task, which may be repeated: its conditions hold once."""

    statement: str
    parameters: tuple[Any, ...]

    @property
    def size(self) -> int:
        return sum(len(value) for value in self.parameters if isinstance(value, str))

    def write(self, using: str) -> Written:
        with connections[using].cursor() as cursor:
            cursor.execute(self.statement, self.parameters)
            return Written(cursor.rowcount, cursor.lastrowid or 0)


class _Notes(together.Queue[Note, Written]):
    """The notes of this process on one database."""

    repeatable = True

    def write_all(self, alias: str, several: list[Note]) -> list[Written]:
        with own_transaction(alias):
            return [note.write(alias) for note in several]


_queues: dict[str, _Notes] = {}
# A fork has only the thread that called it.
os.register_at_fork(after_in_child=_queues.clear)


def write(using: str, statement: str, parameters: list[Any]) -> Written:
    """Write a note, and commit it unless a transaction is open; repeat it where that may help."""
    note = Note(statement, tuple(parameters))

    def alone() -> Written:
        return retrying(note.write, using, using)

    if not together.is_possible(connections[using]):
        return alone()
    return _queues.setdefault(using, _Notes()).write(using, note, alone)
